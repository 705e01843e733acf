"""Who may choose what, who acts next, who wins and who dissents: the rules of a turn as pure functions of its events.

One fold serves both a running turn and a turn that resumes after a kill, so the two cannot differ.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from massmem.core import events as ev
from massmem.core.citations import merge_citations, remove_marks
from massmem.core.criticism import Criticism, build_label, replace_names
from massmem.core.items import Item, UnionItem, add_checks
from massmem.core.messages import Candidate, Citation, Usage
from massmem.core.outcome import Waiting
from massmem.core.short_answers import ShortAnswer, list_keys, read_short_answer
from massmem.core.text import one_line

OWN_VOTES = 2
"""Agents of a turn that may vote for their own answers: of more each would, and nothing would be decided."""

FIRST_RESTART = 3
"""The first round in which agents act again, because newer answers have replaced those that they judged."""

_VOTERS_PER_SPARE = 6
"""In simulated teams of 6 to 9 one ballot mostly differs: with one to spare 24 % are not asked for, without it 17 %."""

_EXCERPT, _LONGEST_REASON = 160, 1_000
_MAX_SUMMARIZED = 2
"""Agents of the minority that one line names: the answer has to stay on the screen."""


@dataclass(frozen=True, slots=True)
class Answer:
    agent_id: str
    number: int
    """Its place among all answers of the turn, from 1."""
    content: str
    truncated: bool = False
    """Its end is missing."""
    work_cut: ev.WorkCut | None = None
    """See `answer_submitted`."""
    citations: tuple[Citation, ...] = ()
    fallback: str = ""
    """See `answer_submitted`."""

    short: ShortAnswer = field(init=False, repr=False, compare=False)
    """Made once: every agent of a round compares the answers."""

    @classmethod
    def of(cls, event: ev.AnswerSubmitted) -> Self:
        parts = event.agent_id, event.number, event.content, event.truncated, event.work_cut
        return cls(*parts, event.citations, event.fallback)

    def __post_init__(self) -> None:
        content = remove_marks(self.content, len(self.citations))  # two may say the same, and have different sources
        object.__setattr__(self, "short", read_short_answer(content, truncated=self.truncated))


class Election:
    """A vote on some answers. Answers that are the same are one candidate, and their ballots count together."""

    def __init__(
        self,
        answers: Mapping[str, Answer],
        ballots: Mapping[str, str],
        *,
        own_votes: bool,
        weights: Mapping[str, float] | None = None,
        same: Sequence[str] = (),
    ) -> None:
        """answers: by agent, in the order of the team. ballots: voter to the author of its choice.
        own_votes: an agent may choose its own answer. weights: of the voices, by agent; None: each counts 1.
        same: authors of texts that say the same, as one of them says; that of the first stands for all.

        A ballot for an author without an answer does not count.
        """
        self._answers = answers
        self._weights = weights or {}
        self._keys = list_keys({agent: answer.short for agent, answer in answers.items()})
        same = [agent for agent in same if agent in answers]
        self._keys |= dict.fromkeys(same, self._keys[same[0]] if same else "")
        earliest: dict[str, Answer] = {}
        for answer in sorted(answers.values(), key=lambda answer: (answer.agent_id in same[1:], answer.number)):
            earliest.setdefault(self._keys[answer.agent_id], answer)
        self.candidates = list(earliest.values())
        """The earliest of those that are the same, in the order in which they were given."""
        self._results = {self._keys[agent] for agent, answer in answers.items() if answer.short.is_bare}
        self._own_votes = own_votes
        self._choices = {voter: self._keys[choice] for voter, choice in ballots.items() if choice in answers}
        self._ballots = Counter(self._choices.values())
        self._authors = Counter(self._keys.values())
        self._listed = list(self._keys.values())

    @property
    def votes(self) -> dict[str, int]:
        """Ballots by the agent whose answer they are for, of the candidates that have any."""
        counts = {candidate.agent_id: self._ballots[self._key(candidate)] for candidate in self.candidates}
        return {agent_id: count for agent_id, count in counts.items() if count}

    def may_choose(self, voter: str, candidate: Answer) -> bool:
        """Whether the voter may vote for the candidate.

        Where own votes are excluded, it may still do so for an answer that another agent gave as well, because a
        majority would have to vote against itself, and for the only candidate.
        """
        is_free = self._own_votes or self._authors[self._key(candidate)] > 1 or len(self.candidates) == 1
        return is_free or not self.gave(voter, candidate)

    def gave(self, agent: str, candidate: Answer) -> bool:
        """Whether the candidate's answer is the agent's own, or the same."""
        return self._keys.get(agent) == self._key(candidate)

    def list_voters(self, candidate: Answer) -> list[str]:
        return [voter for voter, key in self._choices.items() if key == self._key(candidate)]

    def is_forced(self, voter: str) -> bool:
        """Whether the voter had to choose another answer than its own where each states a result, or had but one left.

        Where answers are texts, the choice among two others is a judgement on them, and counts.
        """
        own = self._answers.get(voter)
        return (
            own is not None
            and (bool(self._results) or len(self.candidates) == 2)
            and not self.may_choose(voter, own)
            and self._choices.get(voter) != self._key(own)
        )

    def has_other_result(self, agent: str, candidate: Answer) -> bool:
        """Whether the agent's answer and the candidate come to results, such as numbers, that differ.

        Whether two texts say the same is more than this code can tell.
        """
        keys = {self._keys.get(agent), self._key(candidate)}
        own = self._answers[agent].short.result if agent in self._answers else None
        other = candidate.short.result
        return bool(len(keys) == 2 and keys <= self._results and own and other and own.differs(other))

    def list_leaders(self) -> list[Answer]:
        """Return the candidates with most ballots, the best first.

        Of equals that which more agents gave, then one whose end is not missing, then that of the agent that the team
        lists first. How fast an agent was says nothing for its answer, and would be another agent in the next run.
        """
        ranked = sorted(self.candidates, key=self._rank, reverse=True)
        most, *_ = self._rank(ranked[0])
        return [candidate for candidate in ranked if self._rank(candidate)[0] == most]

    def choose_voters(self, voters: Sequence[str]) -> tuple[str, ...]:
        """Return which of the remaining voters to ask first; none when their ballots cannot change the winner.

        So many of those who may choose the leading answer as would decide the vote if all of them did, with some to
        spare in large teams; all voters, when that is not enough.
        """
        leader = self.list_leaders()[0]
        rivals = [candidate for candidate in self.candidates if candidate is not leader]
        eligible = [voter for voter in voters if self.may_choose(voter, leader)]
        for count in range(len(eligible) + 1):
            rank, others = self._rank(leader, eligible[:count]), [v for v in voters if v not in eligible[:count]]
            # A rival has at most the votes of all who may choose it.
            most = [self._rank(rival, [v for v in others if self.may_choose(v, rival)]) for rival in rivals]
            if max(most, default=rank) <= rank:
                return tuple(eligible[: count + len(voters) // _VOTERS_PER_SPARE]) if count else ()
        return tuple(voters)

    def _rank(self, candidate: Answer, more: Sequence[str] = ()) -> tuple[float, ...]:
        """Return what decides between candidates, the highest wins. more: voters that are added."""
        place = self._listed.index(self._key(candidate))
        ballots = self._weigh([*self.list_voters(candidate), *more])
        return ballots, self.weigh_authors(candidate), not candidate.truncated, -place

    def _weigh(self, agents: Iterable[str]) -> float:
        """Return what the voices of these agents come to; rounded: the order of a sum makes no winner."""
        return round(sum(self._weights.get(agent, 0) if self._weights else 1 for agent in agents), 6)

    def list_citations(self, candidate: Answer) -> tuple[Citation, ...]:
        """Return its sources, and behind them those of the answers that are the same."""
        citing = (answer for answer in self._answers.values() if answer.citations and answer is not candidate)
        same = (answer for answer in citing if self._key(answer) == self._key(candidate))
        others = [citation for answer in same for citation in answer.citations]
        return tuple(merge_citations([*candidate.citations, *others]))

    def weigh_authors(self, candidate: Answer) -> float:
        """Return what the voices of those that gave the answer come to."""
        return self._weigh(agent for agent in self._keys if self.gave(agent, candidate))

    def _key(self, answer: Answer) -> str:
        return self._keys[answer.agent_id]

    def has_majority(self, agents: Iterable[str]) -> bool:
        """Whether more than half of these agents, by their voices, gave the same answer."""
        return max(map(self.weigh_authors, self.candidates), default=0) * 2 > self._weigh(agents)

    def list_supporters(self, candidate: Answer) -> set[str]:
        """Return the agents that stand behind the candidate.

        Each agent counts once: one that voted for it, and one that gave it, unless it preferred another answer to it.
        A vote by which an agent had to leave its own, different result does not count: it still says 42, and not 7.
        """
        voters = {voter for voter in self.list_voters(candidate) if not self.is_forced(voter)}
        authors = {agent for agent in self._keys if self.gave(agent, candidate)}
        turned = {agent for agent in authors if agent in self._choices and self.may_choose(agent, candidate)}
        return voters | (authors - turned)


@dataclass(slots=True)
class Tally:
    """The events of a turn, as far as they decide what happens next."""

    agents: tuple[str, ...] = ()
    """All agents of the turn, in the order of the configuration."""
    seed: int = 0
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the agents' voices, by agent; empty: each counts 1."""
    round: int = 0
    """The current round; 0 before the first."""
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    visible_answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    """The answers as they stood when the round began: what its agents are shown."""
    ballots: dict[str, str] = field(default_factory=dict[str, str])
    """Standing ballots: voter to the agent whose answer the ballot is for."""
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Of each voter's last ballot."""
    criticism: list[Criticism] = field(default_factory=list[Criticism])
    """Of all ballots, also void ones, and new answers; the newest first."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of agents for people, by id; some have none."""
    judged: dict[str, int] = field(default_factory=dict[str, int])
    """Number of the newest answer that each agent was shown when it acted last, of those that were shown answers."""
    acting: tuple[str, ...] = ()
    """Agents of this round."""
    own_votes: bool = True
    """In this round agents may vote for their own answers."""
    first_wave: tuple[str, ...] = ()
    """Whom to ask first in a round with `early_stop`, and the others only while they can change the winner."""
    is_partial: bool = False
    """Only some agents were asked in the first round: it is to be decided whether they are enough."""
    depth: ev.DepthDecided | None = None
    """What was decided; None: nothing yet, or all were asked at once."""
    first_agree: bool | None = None
    """Whether, by the rules of code, the agents that were asked first agreed; None: as for `depth`."""
    acted: set[str] = field(default_factory=set[str])
    missed: set[str] = field(default_factory=set[str])
    """Agents that failed to act in this round."""
    out: set[str] = field(default_factory=set[str])
    """Agents that take no further part in the turn."""
    winner: ev.WinnerDecided | None = None
    answer_now: bool = False
    answer_count: int = 0
    shape: ev.Shape = "vote"
    lists: dict[str, tuple[Item, ...]] = field(default_factory=dict[str, tuple[Item, ...]])
    """What agents listed, and what was not merged yet, by agent."""
    items: tuple[UnionItem, ...] | None = None
    """Merged, with what others say of them; None: nothing was merged yet."""
    usage: Usage = field(default_factory=Usage)
    waiting: Waiting = field(default_factory=Waiting)
    """Requests to the user; an agent that asked has not acted."""

    def apply(self, event: ev.Event) -> None:
        """Take one event in. Events that decide nothing are ignored."""
        self.answer_now |= isinstance(event, ev.AnswerNowRequested)
        match event:
            case ev.TurnStarted(agents=agents, seed=seed, usage=usage):
                self.agents, self.seed, self.weights, self.names = agents, seed, event.weights, event.names
                self.shape = event.shape
                self.usage += usage
            case ev.TurnResumed(agents=agents):
                self.names = {**self.names, **event.names}
                self._resume(agents)
            case ev.RoundStarted():
                self._start_round(event)
            case ev.AnswerSubmitted():
                self.answer_count = max(self.answer_count, event.number)
                self.answers[event.agent_id] = Answer.of(event)
                self._add_action(event)
                self.usage += event.usage
            case ev.BallotCast(agent_id=agent, choice=choice, usage=usage):
                self.ballots[agent], self.reasons[agent] = choice, event.reason
                self._add_action(event, choice)
                self.usage += usage
            case ev.BallotsVoided(agents=agents):
                self.ballots = {voter: choice for voter, choice in self.ballots.items() if voter not in agents}
            case ev.AgentFailed():
                self._add_failure(event)
            case ev.WinnerDecided():
                self.winner = event
            case ev.ParamRequested(usage=usage) | ev.UserReplied(usage=usage) | ev.DepthDecided(usage=usage):
                self.usage += usage
            case _:
                pass
        self._apply_depth(event)
        self._apply_items(event)
        self.waiting.apply(event)

    def apply_all(self, events: Iterable[ev.Event]) -> None:
        for event in events:
            self.apply(event)

    def _start_round(self, event: ev.RoundStarted) -> None:
        if event.round <= self.round:
            return  # the rest of it, after a resumption
        self.round, self.acting = event.round, event.agents
        self.is_partial = self.round == 1 and len(self.acting) < len(self.agents)
        self.own_votes = len(self.live_agents()) <= OWN_VOTES
        self.visible_answers = dict(self.answers)
        self.acted, self.missed = set(), set()
        self.first_wave = self._hold_election().choose_voters(self.acting) if event.early_stop else ()

    def _apply_depth(self, event: ev.Event) -> None:
        if not isinstance(event, ev.DepthDecided):
            return
        self.depth, self.first_agree = event, len(self.answers) > 1 and self.has_one_answer
        self.acting += tuple(agent for agent in event.next if agent not in self.acting)
        self.is_partial = not self.is_enough and len(self.acting) < len(self.agents)

    def _apply_items(self, event: ev.Event) -> None:
        if isinstance(event, ev.ItemsGiven | ev.ItemsChecked):
            self.acted.add(event.agent_id)
            self.usage += event.usage
        match event:
            case ev.AnswerSubmitted(agent_id=agent) | ev.ItemsGiven(agent_id=agent) if event.items is not None:
                self.lists[agent] = event.items
            case ev.AnswerSubmitted(agent_id=agent, replies=checks) | ev.ItemsChecked(agent_id=agent, checks=checks):
                self.items = self.items and add_checks(self.items, agent, checks)
            case ev.ItemsMerged():
                self.items, self.lists = (*(self.items or ()), *event.items), {}
                self.usage += event.usage
            case _:
                pass

    @property
    def is_enough(self) -> bool:
        """Whether no other agent is asked in this turn than those that were asked first."""
        return self.depth is not None and not self.depth.next

    @property
    def same(self) -> tuple[str, ...]:
        """Authors of texts that say the same, as one of them says."""
        return self.depth.asked if self.depth is not None and self.depth.reason == "said_same" else ()

    def _resume(self, agents: tuple[str, ...]) -> None:
        # A failed agent gets another chance, unless the turn only waited; and the team may have changed since.
        self.agents = agents
        if not set(agents) <= self.weights.keys():
            self.weights = {}  # another team: of one of them no weight is known
        if not self.waiting.paused:
            self.out.clear()
            self.missed.clear()
        staying = tuple(agent for agent in self.acting if agent in agents)
        self.acting = staying or (agents if self.acting else ())  # another team acts in the place of the first one
        self.is_partial = self.is_partial and len(self.acting) < len(agents)
        self.ballots = {voter: choice for voter, choice in self.ballots.items() if voter in agents}

    def _add_action(self, event: ev.AnswerSubmitted | ev.BallotCast, choice: str = "") -> None:
        agent = event.agent_id
        self.acted.add(agent)
        if self.visible_answers:
            self.judged[agent] = max(answer.number for answer in self.visible_answers.values())
            if event.reason:
                text = f"For {self.name_answer(choice)}: {event.reason}" if choice else event.reason
                self.criticism.insert(0, Criticism(agent, text, self.judged[agent], choice))

    def _add_failure(self, event: ev.AgentFailed) -> None:
        self.usage += event.usage
        if event.step != "present":
            self.missed.add(event.agent_id)
            if event.out:
                self.out.add(event.agent_id)

    def live_agents(self) -> tuple[str, ...]:
        return tuple(agent for agent in self.agents if agent not in self.out)

    def remaining_actors(self) -> tuple[str, ...]:
        """Return the agents that can and still have to act in the current round."""
        remaining = self._without_action()
        return remaining if self.choose_actors() else ()

    @property
    def awaits_depth(self) -> bool:
        """Whether it is time to decide if the agents that were asked first are enough."""
        return self.is_partial and not self._without_action() and self.waiting.next_request is None

    @property
    def council(self) -> tuple[str, ...]:
        """All agents of the turn, or those whose answers are enough."""
        return tuple(self.answers) if self.is_enough else self.agents

    def choose_actors(self) -> tuple[str, ...]:
        """Return whom to ask next: all; with `early_stop` as many as may decide it, after them nobody or all others."""
        remaining = self._without_action()
        if self.first_wave and remaining and not self._hold_election().choose_voters(remaining):
            return ()
        return tuple(agent for agent in remaining if agent in self.first_wave) or remaining

    def _without_action(self) -> tuple[str, ...]:
        done = self.acted | self.missed | self.out | self.waiting.agents_on_hold(self.round)
        return tuple(agent for agent in self.acting if agent not in done)

    def next_actors(
        self, *, final: bool = False, early_stop: bool = False, majority_wins: bool = False
    ) -> tuple[str, ...]:
        """Return who acts in the next round: every live agent in the first, later those without a standing ballot.

        final: only votes are taken; who has no choice, because there is one answer besides its own, has no vote.
        early_stop: nobody acts when no ballot can change the winner.
        majority_wins: nobody acts when there is no ballot yet and more than half of the agents gave the same answer.
        """
        live = self.live_agents()
        actors = tuple(agent for agent in live if agent not in self.ballots)
        election = self._hold_election(own_votes=len(live) <= OWN_VOTES)
        if final:
            actors = tuple(a for a in actors if sum(election.may_choose(a, c) for c in election.candidates) > 1)
        if majority_wins and not self.ballots and self.answers and election.has_majority(self.agents):
            return ()
        return actors if not (early_stop and actors) or election.choose_voters(actors) else ()

    def _hold_election(self, *, own_votes: bool | None = None) -> Election:
        """Return the vote on all answers, those of agents that left the team last. own_votes None: as in this round."""
        answers = {agent: self.answers[agent] for agent in (*self.agents, *self.answers) if agent in self.answers}
        own_votes = self.own_votes if own_votes is None else own_votes
        return Election(answers, self.ballots, own_votes=own_votes, weights=self.weights, same=self.same)

    def list_voided_voters(self) -> tuple[str, ...]:
        """Return the voters whose ballots a new answer of this round voids. The first round has no ballots."""
        return tuple(self.ballots) if self.answers != self.visible_answers else ()

    def is_decided(self) -> bool:
        """Return whether no further round is needed: every live agent's ballot stands, or there is no choice."""
        live = self.live_agents()
        has_no_choice = self.has_one_answer and (len(self.answers) > 1 or len(live) <= 1)
        return self.is_enough or has_no_choice or all(agent in self.ballots for agent in live)

    @property
    def has_one_answer(self) -> bool:
        return len(self._hold_election().candidates) == 1

    def decide_winner(self, limit: ev.Limit | None = None, max_rounds: int | None = None) -> ev.WinnerDecided:
        """Return the winner, see `Election.list_leaders`.

        There must be an answer. limit: what ended the turn early. max_rounds: as configured.
        """
        election = self._hold_election()
        not_asked = self._without_action() if not self.remaining_actors() else ()
        if self.is_enough:
            not_asked = tuple(agent for agent in self.agents if agent not in self.acting)
        by = "early_stop" if not_asked and election.votes else self._decision(election)
        no_vote: ev.NoVote | None = None
        if by in ("no_vote", "no_vote_held"):
            no_vote = limit or ("failed" if by == "no_vote" else "one_round" if max_rounds == 1 else "no_choice")
        return ev.WinnerDecided(
            agent_id=election.list_leaders()[0].agent_id,
            votes=election.votes,
            by=by,
            not_asked=not_asked,
            no_vote=no_vote,
        )

    def find_dissent(self, winner: str) -> "Dissent | None":
        """Return who agrees with this agent's answer; None when nobody else answered or voted."""
        if self.shape != "vote":
            return None
        answers = {a.agent_id: a for a in sorted(self.answers.values(), key=lambda answer: answer.number)}
        ballots = {voter: (choice, self.reasons.get(voter, "")) for voter, choice in self.ballots.items()}
        return find_dissent(winner, answers, ballots, self.same)

    def list_authors(self, agent_id: str) -> list[str]:
        """Return the agents that gave this agent's answer, or the same."""
        election = self._hold_election()
        return [author for author in self.answers if election.gave(author, self.answers[agent_id])]

    def count_supporters(self, agent_id: str) -> int:
        """Return how many agents stand behind this agent's answer."""
        return len(self._hold_election().list_supporters(self.answers[agent_id]))

    def list_candidates(self, winner: str) -> list[tuple[Answer, tuple[str, ...]]]:
        """Return the answers that somebody stands behind, with those agents: the winner's, then the most supported."""
        election, agents = self._hold_election(), dict.fromkeys((*self.agents, *self.answers, *self.ballots))
        own, listed = self.answers[winner], list[tuple[Answer, tuple[str, ...]]]()
        for candidate in election.candidates:
            supporters = election.list_supporters(candidate)
            is_own = election.gave(winner, candidate)
            listed.append((own if is_own else candidate, tuple(agent for agent in agents if agent in supporters)))
        listed.sort(key=lambda pair: (pair[0] is not own, -len(pair[1])))
        return [pair for pair in listed if pair[1] or pair[0] is own]

    def _decision(self, election: Election) -> ev.Decision:
        leaders = election.list_leaders()
        if self.answer_now and not self.is_decided():
            return "answer_now"
        if len(self.answers) == 1:
            return "only_answer"
        if not election.votes:
            return self._explain_lack_of_votes(election)
        if len(leaders) > 1:
            first, second, *_ = map(election.weigh_authors, leaders)
            return "tie_support" if first > second else "tie"
        has_voted = (agent in self.ballots for agent in self.acting if agent not in self.out)
        return "consensus" if all(has_voted) else "plurality"

    def _explain_lack_of_votes(self, election: Election) -> ev.Decision:
        if len(election.candidates) == 1:
            return "unanimous"
        has_failed_to_vote = self.round > 1 and bool(self.missed)
        if election.has_majority(self.agents) and not has_failed_to_vote:
            return "majority"
        return "no_vote" if self.round > 1 else "no_vote_held"

    def build_candidates(self, for_agent: str, answers: Mapping[str, Answer], order: str = "") -> tuple[Candidate, ...]:
        """Return `answers` without names and repetitions, in an order that is fixed for the turn.

        The order depends on the turn's seed and on who reads it: an unchanged answer stays in its place, which keeps
        the prompt's prefix for caches, and no answer stands first for everyone. What the agent may not vote for has the
        agent's own place in all turns: the labels that it may choose, which are part of the prefix too, stay the same.

        order: agents with the same one read the answers in the same order; "": the agent has its own.
        """
        election = Election(answers, self.ballots, own_votes=self.own_votes)
        candidates = sorted(election.candidates, key=lambda answer: answer.agent_id)
        random.Random(f"{self.seed}:{order or for_agent}").shuffle(candidates)
        if not order:
            barred = [answer for answer in candidates if not election.may_choose(for_agent, answer)]
            candidates = [answer for answer in candidates if answer not in barred]
            place = random.Random(for_agent).randrange(len(candidates) + 1)
            candidates[place:place] = barred
        judged = self.judged.get(for_agent, math.inf)
        return tuple(
            Candidate(
                build_label(i),
                answer.agent_id,
                answer.content,
                votable=election.may_choose(for_agent, answer),
                is_new=answer.number > judged and not election.gave(for_agent, answer),
                citations=election.list_citations(answer),
            )
            for i, answer in enumerate(candidates)
        )

    def name_answer(self, agent_id: str) -> str:
        """Return how a stored text calls the answer of an agent."""
        return f"{self.names.get(agent_id, agent_id)}'s answer"

    def list_criticism(self, reader: str, candidates: Sequence[Candidate]) -> tuple[str, ...]:
        """Return what the others have criticised in this turn, the newest first, in the labels that the reader sees.

        Once there is a winner, reasons for it come last: the others say what is wrong with it.
        """
        answers, winner = self.visible_answers, ""
        if self.winner is not None:
            answers, winner = self.answers, self.winner.agent_id
        election, lines = Election(answers, {}, own_votes=True), dict[str, None]()
        for note in sorted(self.criticism, key=lambda note: note.choice == winner):
            labels: dict[str, str] = {}
            for agent, answer in answers.items():
                label = next((c.label for c in candidates if election.gave(agent, answers[c.agent_id])), "")
                earlier = " (an earlier text of it)" if answer.number > note.seen else ""
                labels[self.name_answer(agent)] = f"Answer {label}{earlier}"
            if note.agent_id != reader:
                lines[one_line(replace_names(note.text, labels), _LONGEST_REASON)] = None
        return tuple(lines)


@dataclass(frozen=True, slots=True)
class Plan:
    """The progress of a turn, as session_state.plan_execution stores it: names only, no values."""

    round: int
    acted: tuple[str, ...]
    asked: Mapping[str, str]
    """The param that each waiting agent needs, by agent."""
    params: tuple[str, ...]
    """All params that agents need, in the order in which the user is asked."""
    asks: int
    """Which time it is that the user is asked for the first of them."""
    remaining: tuple[str, ...]
    """Agents that can act now."""
    out: tuple[str, ...]
    """Agents that failed for good."""
    winner: str | None
    """None until it is decided."""

    @property
    def waiting_for(self) -> str | None:
        """The param that the user is asked for, once no agent can act without it."""
        return self.params[0] if self.params and not self.remaining else None

    def describe(self) -> list[str]:
        """Return the plan as lines for people; none when the turn waits for nothing and nothing remains."""
        lines: list[str] = []
        if self.params:
            times = f" (asked {self.asks} times)" if self.asks > 1 else ""
            lines.append(f"waiting for {self.params[0]}{times}")
            lines += [f"then for {param}" for param in self.params[1:]]
            lines += [f"{agent} needs {param}" for agent, param in self.asked.items()]
        if self.acted and (self.params or self.remaining):
            lines.append(f"round {self.round}, done: {', '.join(self.acted)}")
        if self.remaining:
            lines.append(f"round {self.round}, to do: {', '.join(self.remaining)}")
        return lines


def read_plan(events: Iterable[ev.Event]) -> Plan:
    tally = Tally()
    tally.apply_all(events)
    return build_plan(tally)


def build_plan(tally: Tally) -> Plan:
    waiting = tally.waiting
    return Plan(
        round=tally.round,
        acted=tuple(agent for agent in tally.acting if agent in tally.acted),
        asked={request.agent_id: request.param for request in waiting.open_requests},
        params=waiting.params,
        asks=waiting.ask_number(waiting.params[0]) if waiting.params else 0,
        remaining=() if tally.winner is not None else tally.remaining_actors(),
        out=tuple(agent for agent in tally.agents if agent in tally.out),
        winner=None if tally.winner is None else tally.winner.agent_id,
    )


@dataclass(frozen=True, slots=True)
class Position:
    """The answer of one agent, and its vote."""

    agent: str
    answer: str = ""
    """Empty: it has none."""
    choice: str = ""
    """Id of the agent whose answer it voted for; empty: it did not vote."""
    reason: str = ""
    is_forced: bool = False
    """It could not vote for its own, different answer, and had no free choice, see `Election.is_forced`."""
    is_free: bool = True
    """It gave no other answer than the one that it voted for, or could have voted for its own."""


@dataclass(frozen=True, slots=True)
class Dissent:
    """The agents of a turn that answered or voted, by what they think of the winner's answer."""

    agreed: tuple[Position, ...]
    """They gave it or voted for it, see `Election.list_supporters`."""
    minority: tuple[Position, ...]
    """They voted for another answer, or came to another result."""
    uncompared: tuple[Position, ...] = ()
    """They gave a text and did not vote: nobody has said whether it says the same."""

    @property
    def others(self) -> tuple[Position, ...]:
        """All that are not known to agree."""
        return (*self.minority, *self.uncompared)

    def summarize(self, agreement: str, name: Callable[[str], str]) -> str:
        """Return `2 of 3 agents gave or chose this answer; critic prefers the answer of writer: It is ...`, one line.

        agreement: see `describe_agreement`. name: returns what people are shown for an agent.
        """
        shown = self.minority[:_MAX_SUMMARIZED]
        parts = [agreement, *(describe_position(position, name) for position in shown)]
        if more := len(self.minority) - len(shown):
            parts.append(f"{more} more do not")
        return "; ".join(filter(None, parts))


def describe_position(position: Position, name: Callable[[str], str]) -> str:
    """Return what an agent thinks that does not agree, one line. name: as in `Dissent.summarize`."""
    speaker = name(position.agent)
    if position.choice and not position.is_forced:
        chosen = "its own answer" if position.choice == position.agent else f"the answer of {name(position.choice)}"
        return f"{speaker} prefers {chosen}: {one_line(position.reason, _EXCERPT)}".removesuffix(": ")
    return f"{speaker} answered: {one_line(position.answer, _EXCERPT)}"


def find_dissent(
    winner: str, answers: Mapping[str, Answer], ballots: Mapping[str, tuple[str, str]], same: Sequence[str] = ()
) -> Dissent | None:
    """Return who agrees with the winner's answer and who does not; None when nobody else answered or voted.

    answers: the last one of each agent, in the order in which they came. ballots: choice and reason of each voter, as
    far as they stand. same: as in `Election`.
    """
    agents = list(dict.fromkeys([*answers, *ballots]))
    if winner not in answers or len(agents) < 2:
        return None
    choices = {voter: choice for voter, (choice, _) in ballots.items()}
    election = Election(answers, choices, own_votes=len(agents) <= OWN_VOTES, same=same)
    agreed = election.list_supporters(answers[winner])
    groups: dict[str, list[Position]] = {"agreed": [], "minority": [], "uncompared": []}
    for agent in agents:
        is_forced = election.is_forced(agent)
        text, (choice, reason) = answers[agent].content if agent in answers else "", ballots.get(agent, ("", ""))
        is_free = not choice or agent not in answers or election.may_choose(agent, answers[agent])
        position = Position(agent, text, choice, reason, is_forced, is_free)
        is_other = (position.choice and not is_forced) or election.has_other_result(agent, answers[winner])
        groups["agreed" if agent in agreed else "minority" if is_other else "uncompared"].append(position)
    return Dissent(*map(tuple, groups.values()))
