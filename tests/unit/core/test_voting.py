import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.events import (
    AgentFailed,
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    Event,
    Limit,
    RoundStarted,
    TurnResumed,
    TurnStarted,
    WinnerDecided,
    read_event,
)
from massmem.core.messages import Usage
from massmem.core.verdict import compute_confidence
from massmem.core.voting import (
    Answer,
    Dissent,
    Election,
    Position,
    Tally,
    build_label,
    read_plan,
)
from tests.support.sample_turn import (
    SECRET,
    answer,
    begin,
    compare_texts,
    event,
    param_request,
    waiting,
    waiting_turn,
    whole_turn,
)

USED = Usage(10, 5, requests=1)


def make_start(*agents: str) -> TurnStarted:
    return TurnStarted(session_id="s", turn=1, question="q", agents=agents, seed=7)


def make_answer(agent: str, number: int, round_: int = 1, content: str = "") -> AnswerSubmitted:
    return AnswerSubmitted(agent_id=agent, round=round_, number=number, content=content or f"by {agent}", usage=USED)


def make_ballot(agent: str, choice: str, round_: int = 2) -> BallotCast:
    return BallotCast(agent_id=agent, round=round_, choice=choice, reason="r", usage=USED)


def make_failure(agent: str, round_: int, *, out: bool) -> AgentFailed:
    return AgentFailed(agent_id=agent, round=round_, step="vote", error="X", message="m", out=out, usage=USED)


def make_decision(votes: dict[str, int]) -> WinnerDecided:
    return WinnerDecided(agent_id="a", votes=votes, by="plurality" if votes else "only_answer")


def tally_of(*events: Event) -> Tally:
    tally = Tally()
    tally.apply_all(events)
    return tally


def three_answers() -> list[Event]:
    return [
        make_start("a", "b", "c"),
        RoundStarted(round=1, agents=("a", "b", "c")),
        make_answer("b", 1),
        make_answer("a", 2),
        make_answer("c", 3),
    ]


def test_labels_count_like_spreadsheet_columns():
    assert [build_label(i) for i in (0, 1, 25, 26, 27, 51, 52, 701, 702)] == [
        "A", "B", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA",
    ]  # fmt: skip


def test_all_live_ballots_standing_is_consensus_and_most_votes_win():
    tally = tally_of(
        *three_answers(),
        RoundStarted(round=2, agents=("a", "b", "c")),
        make_ballot("a", "c"),
        make_ballot("b", "c"),
        make_ballot("c", "a"),
    )
    winner = tally.decide_winner()
    assert tally.is_decided()
    assert (winner.agent_id, winner.votes, winner.by) == ("c", {"c": 2, "a": 1}, "consensus")
    assert tally.usage == Usage(60, 30, requests=6)


def test_a_tie_goes_to_the_agent_that_is_listed_first_not_to_the_fastest():
    tally = tally_of(
        *three_answers(),
        RoundStarted(round=2, agents=("a", "b", "c")),
        make_ballot("a", "a"),
        make_ballot("b", "b"),
        make_ballot("c", "c"),
    )
    assert (tally.decide_winner().agent_id, tally.decide_winner().by) == ("a", "tie")


def test_a_tie_goes_to_the_answer_that_more_agents_gave():
    agents = ("a", "b", "c", "d")
    tally = tally_of(
        make_start(*agents),
        RoundStarted(round=1, agents=agents),
        make_answer("a", 1, content="Rome"),
        make_answer("b", 2, content="Paris"),
        make_answer("c", 3, content="Paris."),
        make_answer("d", 4, content="Oslo"),
        RoundStarted(round=2, agents=agents),
        make_ballot("a", "b"),
        make_ballot("b", "a"),
        make_failure("c", 2, out=False),
        make_failure("d", 2, out=False),
    )
    winner = tally.decide_winner()
    assert (winner.agent_id, winner.votes, winner.by) == ("b", {"a": 1, "b": 1}, "tie_support")


def test_without_ballots_the_agent_that_is_listed_first_wins():
    without_vote = tally_of(*three_answers()).decide_winner()
    assert (without_vote.agent_id, without_vote.votes, without_vote.by) == ("a", {}, "no_vote_held")
    round_2 = RoundStarted(round=2, agents=("a", "b", "c"))
    lost = tally_of(*three_answers(), round_2, *(make_failure(agent, 2, out=False) for agent in "abc")).decide_winner()
    assert (lost.agent_id, lost.votes, lost.by, lost.no_vote) == ("a", {}, "no_vote", "failed")


def test_same_answers_need_no_vote():
    tally = tally_of(
        make_start("a", "b", "c"),
        RoundStarted(round=1, agents=("a", "b", "c")),
        make_answer("b", 1, content="Paris."),
        make_answer("a", 2, content=" paris"),
        make_failure("c", 1, out=True),
    )
    winner = tally.decide_winner()
    assert tally.is_decided()
    assert (winner.agent_id, winner.votes, winner.by) == ("b", {}, "unanimous")
    assert compute_confidence(winner, 3, 1, tally.count_supporters("b")) == pytest.approx(2 / 3, abs=1e-4)


def test_same_answers_are_one_candidate_whose_ballots_count_together():
    tally = tally_of(
        make_start("a", "b", "c", "d"),
        RoundStarted(round=1, agents=("a", "b", "c", "d")),
        make_answer("a", 1, content="Rome"),
        make_answer("b", 2, content="Paris"),
        make_answer("c", 3, content="Paris."),
        make_answer("d", 4, content="Oslo"),
    )
    assert not tally.is_decided()
    assert {candidate.content for candidate in tally.build_candidates("a", tally.answers)} == {
        "Rome", "Paris", "Oslo",
    }  # fmt: skip
    tally.apply_all(
        [
            RoundStarted(round=2, agents=("a", "b", "c", "d")),
            make_ballot("a", "a"),
            make_ballot("b", "b"),
            make_ballot("d", "d"),
        ]
    )
    tally.apply(make_ballot("c", "c"))  # as a log of an earlier version has it
    winner = tally.decide_winner()
    assert (winner.agent_id, winner.votes, winner.by) == ("b", {"a": 1, "b": 2, "d": 1}, "consensus")


@pytest.mark.parametrize(
    ("stored", "read"), [("no_votes_earliest", "no_vote"), ("earliest", "no_vote_held"), ("tie_earliest", "tie")]
)
def test_decision_of_an_earlier_version_is_read(stored: str, read: str):
    decision = read_event({"type": "winner_decided", "agent_id": "b", "votes": {}, "by": stored})
    assert isinstance(decision, WinnerDecided)
    assert decision.by == read


def test_decision_that_is_no_text_is_refused_as_any_other_damage():
    with pytest.raises(msgspec.ValidationError):
        read_event({"type": "winner_decided", "agent_id": "b", "votes": {}, "by": ["tie"]})


def test_a_new_answer_voids_every_ballot_and_makes_all_act_again():
    tally = tally_of(
        *three_answers(),
        RoundStarted(round=2, agents=("a", "b", "c")),
        make_ballot("a", "b"),
        make_answer("c", 4, 2, "better"),
        make_ballot("b", "b"),
    )
    assert set(tally.list_voided_voters()) == {"a", "b"}
    assert tally.visible_answers["c"].content == "by c", "agents of the round saw the answers from before it"
    tally.apply(BallotsVoided(round=2, agents=tally.list_voided_voters()))
    assert tally.list_voided_voters() == ()
    assert tally.next_actors() == ("a", "b", "c")
    assert not tally.is_decided()
    assert tally.answers["c"] == Answer("c", 4, "better")


def test_who_missed_a_round_acts_again_while_the_others_ballots_stand():
    tally = tally_of(
        *three_answers(),
        RoundStarted(round=2, agents=("a", "b", "c")),
        make_ballot("a", "b"),
        make_ballot("b", "b"),
        make_failure("c", 2, out=False),
    )
    assert tally.next_actors() == ("c",)
    assert not tally.is_decided()


def test_an_agent_that_is_out_is_not_waited_for_but_its_answer_can_win():
    tally = tally_of(
        *three_answers(),
        RoundStarted(round=2, agents=("a", "b", "c")),
        make_failure("c", 2, out=True),
        make_ballot("a", "c"),
        make_ballot("b", "c"),
    )
    assert tally.is_decided()
    assert tally.decide_winner().agent_id == "c"


def test_one_agent_alone_needs_no_vote():
    tally = tally_of(make_start("a"), RoundStarted(round=1, agents=("a",)), make_answer("a", 1))
    assert tally.is_decided()
    assert tally.decide_winner().by == "only_answer"


def test_a_resumed_round_asks_only_who_has_not_acted_and_gives_failed_agents_another_chance():
    tally = tally_of(
        *three_answers(),
        RoundStarted(round=2, agents=("a", "b", "c")),
        make_ballot("a", "b"),
        make_failure("c", 2, out=True),
        TurnResumed(session_id="s", turn=1, question="q", agents=("a", "b", "c")),
    )
    assert tally.remaining_actors() == ("b", "c")
    assert tally.live_agents() == ("a", "b", "c")


def test_a_changed_team_keeps_answers_and_drops_ballots_of_who_left():
    tally = tally_of(
        *three_answers(),
        RoundStarted(round=2, agents=("a", "b", "c")),
        make_ballot("a", "c"),
        TurnResumed(session_id="s", turn=1, question="q", agents=("b", "d")),
    )
    assert tally.ballots == {}
    assert tally.remaining_actors() == ("b",)
    assert set(tally.next_actors()) == {"b", "d"}
    assert set(tally.answers) == {"a", "b", "c"}


def answers_of(agents: Sequence[str]) -> dict[str, Answer]:
    return {agent: Answer(agent, i, f"text of {agent}") for i, agent in enumerate(agents, 1)}


@given(st.integers(0, 2**32), st.integers(2, 40))
def test_candidates_are_all_answers_in_an_order_fixed_per_agent_and_turn(seed: int, count: int):
    agents = tuple(f"agent{i}" for i in range(count))
    tally, answers = Tally(agents=agents, seed=seed), answers_of(agents)
    first = tally.build_candidates("agent0", answers)
    assert {c.agent_id for c in first} == set(agents)
    assert len({c.label for c in first}) == count
    assert tally.build_candidates("agent0", dict(reversed(answers.items()))) == first


def test_no_answer_stands_first_for_everyone():
    agents = tuple(f"agent{i}" for i in range(8))
    tally, answers = Tally(agents=agents, seed=1), answers_of(agents)
    assert len({tally.build_candidates(a, answers)[0].agent_id for a in agents}) > 2


def test_own_answer_has_the_same_place_in_all_turns_but_not_the_same_for_all_agents():
    agents = [f"agent {n}" for n in range(20)]
    answers = {agent: Answer(agent, number, agent) for number, agent in enumerate(agents, 1)}
    places: dict[str, set[int]] = {agent: set() for agent in agents}
    for seed in range(9):
        tally = Tally(agents=tuple(agents), seed=seed, own_votes=False)
        for agent in agents:
            shown = tally.build_candidates(agent, answers)
            places[agent].update(n for n, candidate in enumerate(shown) if not candidate.votable)
    assert all(len(of_agent) == 1 for of_agent in places.values())
    assert len(set.union(*places.values())) > 5


def test_criticism_stays_over_rounds_and_has_the_letters_of_its_reader():
    tally = tally_of(*three_answers(), RoundStarted(round=2, agents=("a", "b", "c")))
    better = make_answer("b", 4, 2, "better").model_copy(update={"reason": "c's answer has no sources."})
    tally.apply(make_ballot("a", "c").model_copy(update={"reason": "b's answer is wrong on 1932."}))
    tally.apply(better)
    tally.apply(BallotsVoided(round=2, agents=("a",)))
    tally.apply(RoundStarted(round=3, agents=("a", "b", "c")))
    shown = tally.build_candidates("b", tally.visible_answers)
    a, b, c = (next(one.label for one in shown if one.agent_id == agent) for agent in "abc")
    assert tally.list_criticism("b", shown) == (
        f"For Answer {c}: Answer {b} (an earlier text of it) is wrong on 1932.",
    )
    shown = tally.build_candidates("a", tally.visible_answers)
    (c,) = (one.label for one in shown if one.agent_id == "c")
    assert tally.list_criticism("a", shown) == (f"Answer {c} has no sources.",), "not its own, and no names"
    tally.apply(make_ballot("a", "b", 3).model_copy(update={"reason": "Best."}))
    tally.apply(make_ballot("c", "b", 3).model_copy(update={"reason": "a's answer omits the cost."}))
    tally.apply(make_decision({"b": 2}).model_copy(update={"agent_id": "b"}))
    shown = tally.build_candidates("b", tally.answers)
    a, b, c = (next(one.label for one in shown if one.agent_id == agent) for agent in "abc")
    first, *others = tally.list_criticism("b", shown)
    assert first.startswith(f"For Answer {c}: "), "what is wrong with the winner's answer comes first"
    assert others == [f"For Answer {b}: Answer {a} omits the cost.", f"For Answer {b}: Best."]


def test_agents_with_one_order_are_shown_the_same_and_only_their_own_answer_differs():
    agents = tuple(f"agent{i}" for i in range(8))
    tally, answers = tally_of(make_start(*agents), RoundStarted(round=2, agents=agents)), answers_of(agents)
    shown = {agent: tally.build_candidates(agent, answers, "the same model") for agent in agents}
    assert len({tuple((c.label, c.content) for c in candidates) for candidates in shown.values()}) == 1
    for agent, candidates in shown.items():
        assert [c.agent_id for c in candidates if not c.votable] == [agent]


ACTIONS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["answer", "vote", "miss", "out"])), max_size=24)


@given(ACTIONS)
def test_folding_a_log_in_two_parts_gives_the_same_tally(actions: list[tuple[str, str]]):
    events: list[Event] = [make_start("a", "b", "c", "d"), RoundStarted(round=1, agents=("a", "b", "c", "d"))]
    for number, (agent, action) in enumerate(actions, 1):
        round_ = 1 + number // 4
        if number % 4 == 0:
            events.append(RoundStarted(round=round_, agents=("a", "b", "c", "d")))
        match action:
            case "answer":
                events.append(make_answer(agent, number, round_))
            case "vote":
                events.append(make_ballot(agent, "a", round_))
            case _:
                events.append(make_failure(agent, round_, out=action == "out"))
    whole = tally_of(*events)
    parts = tally_of(*events[: len(events) // 2])
    parts.apply_all(events[len(events) // 2 :])
    assert parts == whole
    assert not set(whole.next_actors()) & set(whole.ballots), "nobody with a standing ballot acts again"
    if whole.answers:
        assert whole.decide_winner().agent_id in whole.answers


def test_who_has_acted_who_asked_and_what_remains():
    events = [
        begin("ann", "bob", "eve"),
        event(0, "round_started", round=1, agents=("ann", "bob", "eve")),
        param_request(1, "ann", "zip"),
        answer(1, "bob", "B"),
    ]
    plan = read_plan(events)
    assert (plan.acted, plan.asked, plan.params, plan.remaining) == (("bob",), {"ann": "zip"}, ("zip",), ("eve",))
    assert plan.waiting_for is None, "eve can still act"
    plan = read_plan([*events, answer(2, "eve", "E", number=2), waiting(2, "zip", "ann")])
    assert (plan.waiting_for, plan.asks) == ("zip", 1)
    assert plan.describe() == ["waiting for zip", "ann needs zip", "round 1, done: bob, eve"]


def test_the_second_time_is_named():
    events = [*waiting_turn()[:7], event(6, "user_replied", param="order_id", text="hm")]
    assert read_plan(events).describe()[:2] == ["waiting for order_id (asked 2 times)", "then for zip"]


def test_a_turn_that_was_cut_off_shows_what_is_to_do():
    assert read_plan(waiting_turn()[:2]).describe() == ["round 1, to do: ann, bob"]


def test_a_finished_turn_has_nothing_left():
    plan = read_plan(whole_turn())
    assert (plan.describe(), plan.remaining, plan.winner) == ([], (), "ann")


def test_its_data_are_json_without_values():
    for count in range(1, len(waiting_turn())):
        assert SECRET not in repr(read_plan(waiting_turn()[:count]))


@dataclass
class Electorate:
    """A made-up turn: what each agent answers, and what it would choose if it were asked."""

    random: random.Random
    agents: tuple[str, ...]
    answers: list[Event]
    leaning: float
    """Chance that an agent chooses the best answer; else it chooses any."""
    ballots: dict[str, Event] = field(default_factory=dict[str, Event])
    asked: int = 0
    waves: int = 0
    """Requests of the last vote that followed one another since a kill."""

    @classmethod
    def draw(cls, chance: random.Random, *, leaning: bool) -> "Electorate":
        agents = tuple(f"agent{i}" for i in range(chance.randint(3, 9)))
        right, others = (chance.uniform(0.3, 0.9), 4) if leaning else (0, len(agents))
        events: list[Event] = []
        for number, agent in enumerate(chance.sample(agents, len(agents)), 1):
            content = "right" if chance.random() < right else f"wrong {chance.randrange(others)}"
            fails = chance.random() < 0.05
            events.append(
                make_failure(agent, 1, out=number % 2 == 0) if fails else make_answer(agent, number, 1, content)
            )
        return cls(chance, agents, events, chance.uniform(0.4, 0.95) if leaning else 0)

    def begin(self) -> Tally:
        return tally_of(make_start(*self.agents), RoundStarted(round=1, agents=self.agents), *self.answers)

    def ask(self, agent: str, tally: Tally) -> Event:
        """Return what the agent does, the same each time."""
        self.asked += 1
        if agent not in self.ballots:
            candidates = [c for c in tally.build_candidates(agent, tally.visible_answers) if c.votable]
            best = [c for c in candidates if c.content == "right" and self.random.random() < self.leaning]
            chosen = self.random.choice(best or candidates)
            fails = self.random.random() < 0.05
            ballot = (
                make_failure(agent, 2, out=self.random.random() < 0.5) if fails else make_ballot(agent, chosen.agent_id)
            )
            self.ballots[agent] = ballot
        return self.ballots[agent]

    def hold_vote(self, *, early_stop: bool) -> WinnerDecided:
        """Return the winner of a last round, which a kill may cut off at any point."""
        tally = self.begin()
        actors = tally.next_actors(final=True, early_stop=early_stop)
        tally.apply(RoundStarted(round=2, agents=actors, final=True, early_stop=early_stop))
        self.asked = self.waves = 0
        while wave := tally.choose_actors():
            self.waves += 1
            assert self.waves <= 1 + early_stop
            for agent in self.random.sample(wave, len(wave)):
                tally.apply(self.ask(agent, tally))
            if early_stop and self.random.random() < 0.1:
                self.waves = 0
                tally.apply(TurnResumed(session_id="s", turn=1, question="q", agents=self.agents))
        return tally.decide_winner()


@pytest.mark.parametrize(("leaning", "share"), [(True, 0.24), (False, 0.03)], ids=["leaning", "random"])
@pytest.mark.parametrize("most", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_ballots_that_are_not_asked_for_never_change_the_winner_and_cost_one_wait_more_at_most(
    leaning: bool, share: float, most: int
):
    chance = random.Random(16)
    turns = asked = everybody = changed = waits = 0
    while turns < most:
        electorate = Electorate.draw(chance, leaning=leaning)
        tally = electorate.begin()
        if tally.is_decided() or not tally.answers:
            continue
        turns += 1
        whole = electorate.hold_vote(early_stop=False)
        early = electorate.hold_vote(early_stop=True)
        changed += early.agent_id != whole.agent_id
        waits += electorate.waves > 1
        everybody += len(tally.live_agents())
        asked += electorate.asked
        assert (early.by == "early_stop") <= bool(early.not_asked)
    saved = 1 - asked / everybody
    print(f"{turns:,} turns, {changed} changed winners, {saved:.1%} of the ballots not asked for, {waits:,} waits")
    assert changed == 0
    assert saved >= share


def answers(**contents: str) -> dict[str, Answer]:
    return {agent: Answer(agent, number, content) for number, (agent, content) in enumerate(contents.items(), 1)}


def election(ballots: dict[str, str], *, own_votes: bool = False, **contents: str) -> Election:
    return Election(answers(**contents), ballots, own_votes=own_votes)


def choices(vote: Election, voter: str) -> list[str]:
    return [candidate.agent_id for candidate in vote.candidates if vote.may_choose(voter, candidate)]


def supporters(vote: Election, agent_id: str) -> int:
    return len(vote.list_supporters(next(c for c in vote.candidates if c.agent_id == agent_id)))


def test_weights_of_one_change_nothing_and_no_missing_ballot_can_change_a_weighed_winner():
    chance = random.Random(5)
    for _ in range(400):
        agents = "abcde"[: chance.randint(2, 5)]
        texts = answers(**{agent: chance.choice(["1", "2", "3", "A text."]) for agent in agents})
        ballots = {agent: chance.choice(agents) for agent in agents if chance.random() < 0.5}
        own_votes = len(agents) < 3
        weights = {agent: chance.uniform(0, 3) for agent in agents}
        plain, ones, weighed = (
            Election(texts, ballots, own_votes=own_votes, weights=voices)
            for voices in (None, dict.fromkeys(agents, 1.0), weights)
        )
        rest = [agent for agent in agents if agent not in ballots]
        assert plain.list_leaders() == ones.list_leaders()
        assert plain.has_majority(agents) == ones.has_majority(agents)
        assert plain.choose_voters(rest) == ones.choose_voters(rest)
        if not weighed.choose_voters(rest):
            options = [[a for a in agents if weighed.may_choose(voter, texts[a])] or [voter] for voter in rest]
            for chosen in itertools.product(*options):
                more = Election(
                    texts, ballots | dict(zip(rest, chosen, strict=True)), own_votes=own_votes, weights=weights
                )
                assert more.list_leaders()[0] == weighed.list_leaders()[0]


def test_same_answers_are_one_candidate_the_earliest():
    same = dict(reversed(answers(a="Rome", b="Paris", c="paris.").items()))
    assert [answer.agent_id for answer in Election(same, {}, own_votes=False).candidates] == ["a", "b"]


def test_nobody_chooses_its_own_answer():
    vote = election({}, a="Rome", b="Paris", c="Oslo")
    assert {voter: choices(vote, voter) for voter in "abcd"} == {
        "a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"], "d": ["a", "b", "c"],
    }  # fmt: skip


def test_an_answer_that_another_agent_gave_as_well_may_be_chosen():
    vote = election({}, a="Rome", b="Paris", c="paris")
    assert {voter: choices(vote, voter) for voter in "abc"} == {"a": ["b"], "b": ["a", "b"], "c": ["a", "b"]}


def test_own_answers_may_be_chosen_where_that_is_allowed_or_there_is_no_other():
    assert choices(election({}, own_votes=True, a="Rome", b="Paris"), "a") == ["a", "b"]
    assert choices(election({}, a="Rome"), "a") == ["a"]


def test_ballots_for_the_same_answer_count_together_and_those_for_nobody_do_not():
    vote = election({"a": "b", "d": "c", "b": "a", "c": "gone"}, a="Rome", b="Paris", c="paris")
    assert vote.votes == {"a": 1, "b": 2}
    assert [leader.agent_id for leader in vote.list_leaders()] == ["b"]


def test_agents_that_gave_an_answer_or_voted_for_it_support_it_once_each():
    vote = election({"b": "c", "c": "b"}, a="Rome", b="Paris", c="paris", d="Oslo")
    assert {agent: supporters(vote, agent) for agent in "abd"} == {"a": 1, "b": 2, "d": 1}


def test_an_author_supports_its_answer_though_it_had_to_vote_for_another():
    vote = election({"a": "b", "b": "a", "c": "a"}, a="Rome", b="Paris", c="Oslo")
    assert {agent: supporters(vote, agent) for agent in "abc"} == {"a": 3, "b": 2, "c": 1}


def test_an_author_that_could_choose_its_answer_and_preferred_another_does_not_support_it():
    vote = election({"b": "a"}, a="Rome", b="Paris", c="paris")
    assert {agent: supporters(vote, agent) for agent in "ab"} == {"a": 2, "b": 1}
    two = election({"a": "b", "b": "b"}, own_votes=True, a="Rome", b="Paris")
    assert {agent: supporters(two, agent) for agent in "ab"} == {"a": 0, "b": 2}


def test_of_equal_answers_a_whole_one_comes_before_one_that_is_cut_off():
    cut, whole = Answer("a", 1, "The sky is", truncated=True), Answer("b", 2, "The sky is blue.")
    vote = Election({"a": cut, "b": whole}, {}, own_votes=True)
    assert [leader.agent_id for leader in vote.list_leaders()] == ["b", "a"]


def test_an_answer_stands_where_the_first_of_its_agents_is_listed():
    listed = {"a": Answer("a", 3, "Rome"), "b": Answer("b", 1, "Oslo"), "c": Answer("c", 2, "Rome")}
    assert [leader.content for leader in Election(listed, {}, own_votes=True).list_leaders()] == ["Rome", "Oslo"]
    tied = {
        "a": Answer("a", 4, "Rome"),
        "b": Answer("b", 1, "Oslo"),
        "c": Answer("c", 2, "Oslo"),
        "d": Answer("d", 3, "Rome"),
    }
    assert [leader.content for leader in Election(tied, {}, own_votes=True).list_leaders()] == ["Rome", "Oslo"]


ANSWERS = {"ann": "Paris, since 987.", "bob": "Lyon.", "eve": "Marseille."}


def dissent_of(ballots: dict[str, str], **more: str) -> Dissent:
    dissent = compare_texts("ann", ANSWERS | more, {voter: (choice, "as it is") for voter, choice in ballots.items()})
    assert dissent is not None
    return dissent


def test_who_gave_or_chose_the_answer_agrees_and_who_preferred_another_does_not():
    dissent = dissent_of({"ann": "eve", "bob": "eve", "eve": "ann"})
    assert [position.agent for position in dissent.agreed] == ["ann", "eve"], "ann may not choose its own"
    (bob,) = dissent.minority
    assert (bob.answer, bob.choice, bob.reason) == ("Lyon.", "eve", "as it is")


def test_who_gave_a_text_and_did_not_vote_is_not_compared():
    dissent = dissent_of({"bob": "ann"})
    assert [position.agent for position in dissent.uncompared] == ["eve"]
    assert dissent.minority == ()


def test_who_came_to_another_result_is_of_the_minority_without_a_vote():
    dissent = compare_texts("ann", {"ann": "Answer: 42", "bob": "Answer: 7", "eve": "It depends."}, {})
    assert dissent is not None
    assert [[position.agent for position in group] for group in (dissent.minority, dissent.uncompared)] == [
        ["bob"], ["eve"],
    ]  # fmt: skip


def test_the_same_answer_agrees_without_a_vote():
    assert [position.agent for position in dissent_of({}, eve="paris, since 987").agreed] == ["ann", "eve"]


def test_an_agent_alone_has_no_dissent():
    assert compare_texts("ann", {"ann": "Paris."}, {"ann": ("ann", "mine")}) is None
    assert compare_texts("gone", {"ann": "Paris.", "bob": "Lyon."}, {}) is None


def test_one_line_says_how_many_agree_and_what_the_others_prefer():
    dissent = dissent_of({"bob": "eve", "ann": "bob"})
    assert dissent.summarize("1 of 3", str.upper) == "1 of 3; BOB prefers the answer of EVE: as it is"


def test_of_a_large_minority_the_line_names_two():
    answers = {"ann": "1", "bob": "2", "eve": "3", "ida": "4", "jan": "5"}
    dissent = compare_texts("ann", answers, {})
    assert dissent is not None
    assert dissent.summarize("1 of 5", str) == "1 of 5; bob answered: 2; eve answered: 3; 2 more do not"


@pytest.mark.parametrize(
    ("limit", "max_rounds", "reason"), [(None, 1, "one_round"), ("timeout", 3, "timeout"), (None, 3, "no_choice")]
)
def test_a_decision_without_votes_says_why(limit: Limit | None, max_rounds: int, reason: str):
    assert tally_of(*three_answers()).decide_winner(limit, max_rounds).no_vote == reason


def test_vote_for_the_only_other_answer_is_no_free_choice():
    texts = {"ann": "Ask Karin.", "bob": "Ask Karin.", "eve": "Climb the fence."}
    assert supporters(election({"ann": "bob", "eve": "ann"}, **texts), "ann") == 2
    assert supporters(election({"eve": "ann"}, **texts | {"bob": "Wait here."}), "ann") == 2


def test_vote_against_the_own_result_is_no_agreement():
    answers = {"ann": "Answer: 42", "bob": "Answer: 7", "eve": "6 x 7 makes 42"}
    dissent = compare_texts("ann", answers, {"bob": ("ann", "it is longer")})
    assert dissent is not None
    assert dissent.summarize("2 of 3", str) == "2 of 3; bob answered: Answer: 7"
    assert dissent.minority == (Position("bob", "Answer: 7", "ann", "it is longer", is_forced=True, is_free=False),)
