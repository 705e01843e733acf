"""Rounds, votes, failures and limits of a turn, and resuming it after any event."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.config.models import CoordinationConfig
from massmem.core.criticism import build_label
from massmem.core.errors import StoreUnavailable
from massmem.core.events import (
    AgentDelta,
    AgentFailed,
    AgentRetrying,
    AgentStarted,
    AnswerNowRequested,
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    Event,
    Notice,
    RoundStarted,
    TurnCompleted,
    TurnFailed,
    WinnerDecided,
)
from massmem.core.messages import ChatRequest, Chunk
from massmem.core.prompts import parse_candidates
from massmem.core.voting import Answer, Tally
from massmem.memory.persistent import RecallOptions
from massmem.providers import Providers
from massmem.providers.base import Abilities, AlwaysReady
from massmem.providers.pricing import Price
from massmem.turn.coordinator import Turn
from massmem.turn.shapes import run_turn
from tests.support.contexts import RequestKeeper
from tests.support.turns import SEED, Collector, agent_of, agents_of, check_order, config_of, only, play, run

VOTE_A = {"vote": "A", "reason": "clear"}


class BrokenProvider(AlwaysReady):
    """A provider with a bug."""

    abilities = Abilities()
    price = Price()

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        raise AttributeError("no such attribute")

    async def count_prompt(self, request: ChatRequest) -> int | None:
        return None


def council(size: int, **script: Any) -> dict[str, dict[str, Any]]:
    return {f"agent_{build_label(i).lower()}": {"answer": f"answer {i}.", **script} for i in range(size)}


def find_completion(events: list[Event]) -> TurnCompleted:
    assert isinstance(events[-1], TurnCompleted), events[-1]
    return events[-1]


@pytest.mark.parametrize("tools", [True, False], ids=["tool calls", "constrained output"])
@pytest.mark.parametrize("size", [2, 3, 8, 32])
async def test_turn_without_improvements_takes_two_requests_per_agent_and_one(size: int, tools: bool):
    events = await play(council(size, vote={"vote_for": "answer 1.", "reason": "r"}, present="final"), tools=tools)
    check_order(events)
    end = find_completion(events)
    assert end.usage.requests == 2 * size + 1
    assert (end.winner, end.answer, end.presented) == ("agent_b", "final", True)
    own = {} if size == 2 else {next(b.choice for b in only(events, BallotCast) if b.agent_id == "agent_b"): 1}
    assert only(events, WinnerDecided)[0].votes == {"agent_b": size - len(own), **own}
    assert "agent_b" not in own
    assert only(events, WinnerDecided)[0].by == "consensus"


async def test_agents_that_agree_are_asked_once():
    """No vote and no presentation: 3 requests instead of 7."""
    events = await play({"a": {"answer": "It is 42."}, "b": {"answer": "it is  42"}, "c": {"answer": "**It is 42.**"}})
    check_order(events)
    end = find_completion(events)
    assert (end.usage.requests, end.presented, end.confidence) == (3, False, 1.0)
    assert only(events, WinnerDecided)[0].by == "unanimous"
    assert not only(events, BallotCast)


async def test_answer_that_two_agents_gave_stands_once_among_the_candidates():
    vote = {"vote": {"vote_for": "42", "reason": "r"}}
    events = await play({"a": {"answer": "42", **vote}, "b": {"answer": "7", **vote}, "c": {"answer": "42.", **vote}})
    winner = only(events, WinnerDecided)[0]
    earliest = next(event.agent_id for event in only(events, AnswerSubmitted) if "42" in event.content)
    assert (winner.agent_id, winner.votes) == (earliest, {earliest: 3})


async def test_agent_that_votes_for_itself_is_asked_once_more_and_then_fails():
    scripts = council(3, vote={"vote_for": "answer 0.", "reason": "r"})
    answers = {name: Answer(name, number, name) for number, name in enumerate(scripts, 1)}
    candidates = Tally(seed=SEED, own_votes=False).build_candidates("agent_b", answers)
    own = next(candidate.label for candidate in candidates if not candidate.votable)
    ballot = {"raw": json.dumps({"reason": "mine", "action": "vote", "choice": own})}
    scripts["agent_b"]["vote"] = [ballot, ballot, "first"]
    events = await play(scripts, tools=False, max_rounds=4)
    check_order(events)
    (failure,) = only(events, AgentFailed)
    assert (failure.agent_id, failure.out) == ("agent_b", False)
    assert "agent_b did not act: `choice` must be one of" in failure.message
    assert [ballot.round for ballot in only(events, BallotCast) if ballot.agent_id == "agent_b"] == [3]


async def test_of_two_agents_each_may_vote_for_itself():
    scripts = {name: {"answer": name, "vote": {"vote_for": name, "reason": "mine"}} for name in ("first", "second")}
    events = await play(scripts)
    assert all(ballot.agent_id == ballot.choice for ballot in only(events, BallotCast))
    assert find_completion(events).confidence == 0.5


async def test_agent_alone_wins_without_vote_and_presentation():
    events = await play(council(1))
    check_order(events)
    assert (find_completion(events).answer, find_completion(events).usage.requests) == ("answer 0.", 1)
    assert not find_completion(events).presented


async def test_better_answer_voids_the_ballots_and_everyone_acts_again():
    scripts = council(3, vote=[VOTE_A, {"vote_for": "better", "reason": "r"}], present="final")
    scripts["agent_c"]["vote"] = [{"new_answer": "better"}, {"vote_for": "better", "reason": "r"}]
    events = await play(scripts)
    check_order(events)
    assert [r.agents for r in only(events, RoundStarted)] == [("agent_a", "agent_b", "agent_c")] * 3
    assert [r.final for r in only(events, RoundStarted)] == [False, False, True]
    assert set(only(events, BallotsVoided)[0].agents) == {"agent_a", "agent_b"}
    assert [a.number for a in only(events, AnswerSubmitted)] == [1, 2, 3, 4]
    assert find_completion(events).winner == "agent_c"
    assert find_completion(events).usage.requests == 3 + 3 + 3 + 1


async def test_voter_is_told_which_answers_are_new_and_presenter_why_the_others_voted():
    scripts = council(3, vote=[VOTE_A, {"vote_for": "better", "reason": "Too short."}], present="final")
    scripts["agent_c"]["vote"] = [{"new_answer": "better"}, {"vote_for": "answer 0.", "reason": "mine"}]
    providers = Providers()
    configs = [config_of(name, script) for name, script in scripts.items()]
    keepers = {config.id: RequestKeeper(await providers.open(config.backend)) for config in configs}
    await run({config.id: agent_of(config, keepers[config.id]) for config in configs}, early_stop=False)
    sent = {name: [request.messages[-1].content for request in keeper.requests] for name, keeper in keepers.items()}
    for name in ("agent_a", "agent_b"):
        _, before, after = sent[name]
        (label,) = (label for label, text in parse_candidates(after).items() if text == "better")
        assert f"\nNew since you compared them last: {label}.\nAnswer" in after
        assert "New since" not in before
        assert after.startswith(before.partition(f'<answer label="{label}">')[0]), "what is old stays in the cache"
    *votes, present = sent["agent_c"]
    assert "New since" not in "".join(votes), "its own answer is no news to it"
    (own,) = re.findall(r"Answer (.) is yours", present)
    notes = present.partition("<notes>\n")[2].partition("\n</notes>")[0].splitlines()
    assert notes[-1] == f"For Answer {own}: Too short.", "the same reason once, no name, and not its own"
    assert {line.partition(": ")[2] for line in notes[:-1]} == {"clear"}, "those of ballots that are void"
    assert "which you have replaced since:\n<notes>\nanswer 2.\n</notes>" in present


async def test_letters_in_reasons_are_names_in_events_and_letters_of_their_reader_in_prompts():
    scripts, providers = council(3, vote="first", present="final"), Providers()
    for name in scripts:
        scripts[name]["vote"] = [{"vote": "first", "reason": "A is vague, B lacks sources, C guesses."}]
    configs = [config_of(name, script) for name, script in scripts.items()]
    keepers = {config.id: RequestKeeper(await providers.open(config.backend)) for config in configs}
    events = await run({config.id: agent_of(config, keepers[config.id]) for config in configs}, early_stop=False)
    texts = {f"agent_{letter}": f"answer {n}." for n, letter in enumerate("abc")}
    for ballot in only(events, BallotCast):
        (asked,) = (r for r in keepers[ballot.agent_id].requests if r.purpose == "vote")
        author = {label: name for label, text in parse_candidates(asked.messages[-1].content).items()
                  for name, other in texts.items() if other == text}  # fmt: skip
        assert ballot.reason == "{A}'s answer is vague, {B}'s answer lacks sources, {C}'s answer guesses.".format(
            **author
        )
    winner = find_completion(events).winner
    present = keepers[winner].requests[-1].messages[-1].content
    shown = parse_candidates(present)
    for ballot in only(events, BallotCast):
        if ballot.agent_id != winner:
            reason = ballot.reason
            for label, text in shown.items():
                (name,) = (name for name, other in texts.items() if other == text)
                reason = reason.replace(f"{name}'s answer", f"Answer {label}")
            assert reason in present


async def test_answer_that_an_agent_has_replaced_is_no_memory():
    scripts = council(3, vote=VOTE_A, present="final")
    scripts["agent_c"]["vote"] = [{"new_answer": "better"}, {"vote_for": "answer 0.", "reason": "mine"}]
    asked: list[RecallOptions] = []

    async def recall(question: str, options: RecallOptions) -> str:
        asked.append(options)
        return ""

    providers = Providers()
    agents = {name: config_of(name, script) for name, script in scripts.items()}
    opened = {name: await providers.open(config.backend) for name, config in agents.items()}
    await run({
        name: agent_of(config, opened[name], recall=recall if name == "agent_c" else None)
        for name, config in agents.items()
    })  # fmt: skip
    assert "answer 2." in asked[-1].verbatim, "it is treated as shown"


async def test_plurality_wins_after_the_last_round():
    scripts = council(4, vote={"vote_for": "answer 2.", "reason": "r"}, present="final")
    scripts["agent_a"]["vote"] = {"raw": "no idea"}
    events = await play(scripts, max_rounds=2)
    check_order(events)
    assert only(events, WinnerDecided)[0].by == "plurality"
    assert find_completion(events).winner == "agent_c"


FIRST_WINS = {"vote_for": "answer 0.", "reason": "r"}


async def test_last_votes_that_cannot_change_the_winner_are_not_asked_for():
    events = await play(council(5, vote=FIRST_WINS), max_rounds=2, presentation="as_is")
    check_order(events)
    (winner,) = only(events, WinnerDecided)
    assert (winner.agent_id, winner.by, sum(winner.votes.values())) == ("agent_a", "early_stop", 3)
    voters = {ballot.agent_id for ballot in only(events, BallotCast)}
    assert {*voters, *winner.not_asked} == {*only(events, RoundStarted)[1].agents}
    assert find_completion(events).usage.requests == 5 + 3
    assert find_completion(events).confidence == 0.8, "who was not asked counts as not convinced"
    everybody = await play(council(5, vote=FIRST_WINS), max_rounds=2, early_stop=False)
    (winner,) = only(everybody, WinnerDecided)
    assert (winner.agent_id, winner.by, winner.not_asked) == ("agent_a", "consensus", ())
    assert len(only(everybody, BallotCast)) == 5


async def test_everybody_is_asked_where_a_better_answer_may_come():
    events = await play(council(5, vote=FIRST_WINS), max_rounds=3)
    assert len(only(events, BallotCast)) == 5


async def test_all_others_are_asked_at_once_while_the_winner_is_open():
    scripts = council(7)
    for number, script in enumerate(scripts.values(), 1):
        script["vote"] = {"vote_for": f"answer {number % 7}.", "reason": "r"}
    events = await play(scripts, max_rounds=2, presentation="as_is")
    check_order(events)
    assert len(only(events, BallotCast)) == 7
    votes = "".join(type(event).__name__[0] for event in events if isinstance(event, AgentStarted | BallotCast))
    assert votes.count("BA") == 1, "two waves of requests for ballots, and not one more"
    failing = council(3, vote=FIRST_WINS)
    failing["agent_b"]["vote"] = failing["agent_c"]["vote"] = {"error": "refused"}
    events = await play(failing, max_rounds=2)
    check_order(events)
    assert [ballot.agent_id for ballot in only(events, BallotCast)] == ["agent_a"]


async def test_agent_with_nothing_to_choose_between_is_not_asked_to_vote():
    team = {"a": {"answer": "7"}, "b": {"answer": "42"}, "c": {"answer": "42."}}
    events = await play(team, max_rounds=2, majority_wins=False)
    assert only(events, RoundStarted)[1].agents == ("b", "c"), "the only answer besides its own is theirs"
    alone = await play({"a": {"answer": "7"}, "b": {"answer": ""}, "c": {"answer": ""}}, max_rounds=2)
    assert (only(alone, WinnerDecided)[0].by, len(only(alone, RoundStarted))) == ("only_answer", 1)


async def test_answer_of_more_than_half_of_the_agents_wins_without_a_vote():
    team = {"a": {"answer": "7"}, "b": {"answer": "42"}, "c": {"answer": "6 x 7\nAnswer: 42"}}
    events = await play(team, max_rounds=2)
    check_order(events)
    (winner,) = only(events, WinnerDecided)
    (end,) = only(events, TurnCompleted)
    assert (winner.agent_id, winner.by, winner.votes, len(only(events, RoundStarted))) == ("b", "majority", {}, 1)
    assert end.confidence == pytest.approx(2 / 3, abs=1e-3)


async def test_half_of_the_agents_is_no_majority_and_rounds_that_may_improve_answers_are_held():
    half = {"a": {"answer": "7"}, "b": {"answer": "42"}, "c": {"answer": "42"}, "d": {"answer": "9"}}
    assert len(only(await play(half, max_rounds=2), RoundStarted)) == 2
    most = {"a": {"answer": "7"}, "b": {"answer": "42"}, "c": {"answer": "42"}}
    assert [start.round for start in only(await play(most, max_rounds=3), RoundStarted)] == [1, 2]


async def test_early_stop_that_was_cut_off_after_any_event_asks_nobody_more_and_has_the_same_winner():
    scripts = council(5, vote=FIRST_WINS)
    whole: list[Event] = [e for e in await play(scripts, max_rounds=2) if not isinstance(e, AgentDelta)]
    for cut in range(1, len(whole)):
        logged = whole[:cut]
        events = await play(scripts, logged, max_rounds=2)
        (winner,) = only([*logged, *events], WinnerDecided)
        ballots = only([*logged, *events], BallotCast)
        assert winner.agent_id == "agent_a", f"cut after {cut} events"
        assert len({ballot.agent_id for ballot in ballots}) == len(ballots) == 3, f"cut after {cut} events"


async def play_until(
    scripts: Mapping[str, dict[str, Any]], moment: type[Event] | None, logged: Sequence[Event] = (), **more: Any
) -> list[Event]:
    """Run a turn whose user wants the answer now once an event of this type comes; None: from the beginning."""
    answer_now = asyncio.Event()
    if moment is None:
        answer_now.set()
    schema, settings = more.pop("answer_schema", None), CoordinationConfig(**more)
    turn = Turn("session_x", 1, "why?", SEED, logged, answer_schema=schema)

    def watch(event: Event) -> None:
        if moment is not None and isinstance(event, moment):
            answer_now.set()

    outbox = Collector(watch)
    await run_turn(turn, await agents_of(scripts), settings, outbox, answer_now=answer_now)
    return outbox.events


def slow_council(**script: Any) -> dict[str, dict[str, Any]]:
    """The first agent answers at once, the others too late for any test."""
    scripts = council(3, vote=FIRST_WINS, **script)
    for name in ("agent_b", "agent_c"):
        scripts[name]["answer"] = {"text": f"answer of {name}", "delay": 30}
    return scripts


@pytest.mark.parametrize("moment", [None, AgentStarted, AnswerSubmitted])
async def test_user_who_wants_the_answer_now_is_given_the_first_one(moment: type[Event] | None):
    events = await play_until(slow_council(), moment)
    assert len(only(events, AnswerNowRequested)) == 1
    (winner,) = only(events, WinnerDecided)
    assert (winner.agent_id, winner.by, winner.votes) == ("agent_a", "answer_now", {})
    end = find_completion(events)
    assert (end.answer, end.presented, end.confidence, end.limit) == ("answer 0.", False, None, None)
    assert only(events, AgentFailed) == []


async def test_ballots_so_far_decide_when_the_user_wants_the_answer_now():
    scripts = council(4, vote={"vote_for": "answer 3.", "reason": "r"}, present="final")
    scripts["agent_b"]["vote"] = scripts["agent_d"]["vote"] = {"vote": "first", "delay": 30}
    events = await play_until(scripts, BallotCast)
    (winner,) = only(events, WinnerDecided)
    assert (winner.agent_id, winner.by) == ("agent_d", "answer_now")
    assert find_completion(events).answer == "answer 3.", "no presentation"
    assert find_completion(events).confidence is not None


async def test_presentation_is_left_out_when_the_user_wants_the_answer_now():
    scripts = council(2, vote=VOTE_A, present={"text": "final", "delay": 30})
    events = await play_until(scripts, WinnerDecided)
    assert find_completion(events).answer in ("answer 0.", "answer 1.")
    assert only(events, Notice) == []
    assert only(events, WinnerDecided)[0].by in ("consensus", "tie"), "it was decided before"


async def test_answer_that_has_to_fit_a_schema_is_presented_also_now():
    schema = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
    events = await play_until(slow_council(present='{"port": 8080}'), None, answer_schema=schema)
    assert find_completion(events).data == {"port": 8080}


async def test_agents_that_agree_are_unanimous_also_now():
    events = await play_until({"a": {"answer": "42"}, "b": {"answer": "42"}}, None)
    assert only(events, WinnerDecided)[0].by == "unanimous" or len(only(events, AnswerSubmitted)) == 1


async def test_resumed_turn_still_ends_with_the_first_answer():
    scripts = slow_council()
    whole: list[Event] = [e for e in await play_until(scripts, AgentStarted) if not isinstance(e, AgentDelta)]
    asked = next(i for i, event in enumerate(whole) if isinstance(event, AnswerNowRequested))
    for cut in range(asked + 1, len(whole)):
        events = await play(scripts, whole[:cut])
        assert find_completion(events).answer == "answer 0.", f"cut after {cut} events"
        assert only([*whole[:cut], *events], WinnerDecided)[0].by == "answer_now"


async def test_answer_below_the_confidence_bound_is_escalated():
    scripts = council(4, vote={"vote_for": "answer 2.", "reason": "r"}, present="final")
    ends = {bound: find_completion(await play(scripts, escalate_below=bound)) for bound in (None, 0.0, 1.0)}
    assert {bound: (end.confidence, end.escalated) for bound, end in ends.items()} == {
        None: (1.0, False),
        0.0: (1.0, False),
        1.0: (1.0, False),
    }
    scripts["agent_a"]["vote"] = {"raw": "no idea"}
    ends = {
        bound: find_completion(await play(scripts, max_rounds=2, escalate_below=bound)) for bound in (None, 0.7, 0.8)
    }
    assert {end.confidence for end in ends.values()} == {0.75}
    assert {bound: end.escalated for bound, end in ends.items()} == {None: False, 0.7: False, 0.8: True}
    alone = find_completion(await play(council(1), escalate_below=1.0))
    assert (alone.confidence, alone.escalated) == (None, False)


@pytest.mark.parametrize("cut", [None, "before the winner", "after the winner"])
async def test_turn_in_which_nobody_could_vote_is_no_agreement(cut: str | None):
    scripts = council(3, vote={"raw": "no idea"}, present="final")
    events = await play(scripts, max_rounds=2, escalate_below=0.1)
    if cut:
        end = next(i for i, event in enumerate(events) if isinstance(event, WinnerDecided))
        past = events[: end + (cut == "after the winner")]
        events = [*past, *await play(scripts, past, max_rounds=2, escalate_below=0.1)]
    (decision,) = only(events, WinnerDecided)
    assert (decision.by, decision.votes) == ("no_vote", {})
    assert (find_completion(events).confidence, find_completion(events).escalated) == (None, True)
    assert ["nobody could vote" in notice.message for notice in only(events, Notice)] == [True]


async def test_turn_without_a_voting_round_holds_no_vote_and_says_nothing_of_it():
    events = await play(council(3), max_rounds=1)
    assert only(events, WinnerDecided)[0].by == "no_vote_held"
    assert (find_completion(events).confidence, only(events, Notice)) == (None, [])


async def test_failing_agent_is_reported_and_the_others_go_on():
    scripts = council(3, vote={"vote_for": "answer 1.", "reason": "r"})
    scripts["agent_a"]["answer"] = {"error": "auth"}
    events = await play(scripts)
    check_order(events)
    (failure,) = only(events, AgentFailed)
    assert (failure.agent_id, failure.error, failure.out) == ("agent_a", "AuthenticationError", True)
    assert only(events, RoundStarted)[1].agents == ("agent_b", "agent_c")
    assert find_completion(events).winner == "agent_b"


@pytest.mark.parametrize(
    ("errors", "exit_code"),
    [
        (["auth", "auth"], 2),
        (["unavailable", "rate_limit"], 3),
        (["auth", "unavailable"], 3),
        (["refused", "refused"], 1),
        (["refused", "auth"], 1),
    ],
)
async def test_turn_of_failing_agents_fails_with_the_most_helpful_exit_code(errors: list[str], exit_code: int):
    events = await play({f"a{i}": {"answer": {"error": e}} for i, e in enumerate(errors)})
    check_order(events)
    end = events[-1]
    assert isinstance(end, TurnFailed)
    assert end.exit_code == exit_code
    assert end.message.startswith("no agent could answer")


async def test_malformed_vote_is_repaired_once():
    scripts = council(2, vote=[{"raw": "I think A"}, VOTE_A])
    events = await play(scripts, tools=False)
    check_order(events)
    assert len(only(events, BallotCast)) == 2
    # The text of the first reply is taken back, as that of every attempt that does not count.
    retries = only(events, AgentRetrying)
    assert [event.agent_id for event in retries] == ["agent_a", "agent_b"]
    assert all(event.error.startswith("its reply cannot be used: ") for event in retries)
    assert find_completion(events).usage.requests == 2 + 2 * 2 + 1


async def test_agent_whose_vote_is_malformed_twice_acts_in_the_next_round():
    scripts = council(2, vote=VOTE_A)
    scripts["agent_b"]["vote"] = [{"raw": "?"}, {"raw": "?"}, VOTE_A]
    events = await play(scripts)
    check_order(events)
    (failure,) = only(events, AgentFailed)
    assert (failure.error, failure.out) == ("NotAnActionError", False)
    assert [r.agents for r in only(events, RoundStarted)][1:] == [("agent_a", "agent_b"), ("agent_b",)]
    assert len(only(events, BallotCast)) == 2


async def test_empty_answer_is_no_action():
    scripts = council(2, vote=VOTE_A)
    scripts["agent_a"]["answer"] = "  "
    events = await play(scripts)
    check_order(events)
    assert only(events, AgentFailed)[0].out is False
    assert find_completion(events).answer == "answer 1."


async def test_answer_of_a_winner_that_cannot_present_is_used_unchanged():
    events = await play(council(2, vote={"vote_for": "answer 1.", "reason": "r"}, present={"error": "unavailable"}))
    check_order(events)
    assert (find_completion(events).answer, find_completion(events).presented) == ("answer 1.", False)
    assert only(events, Notice)


async def test_presentation_as_is_sends_no_request():
    events = await play(council(3, vote=VOTE_A), presentation="as_is")
    assert find_completion(events).usage.requests == 6


@pytest.mark.parametrize(
    ("kind", "answers", "presented"),
    [
        ("auto", ("Half of 84.\nAnswer: 42", "Twice 20.\nAnswer: 40", "Answer: 41"), False),
        ("auto", ("No, it is not.\nAnswer: no", "It is.\nAnswer: yes", "Maybe."), False),
        ("auto", ("Air scatters blue light.", "The sky mirrors the sea.", "Answer: 42"), True),
        ("synthesize", ("Answer: 42", "Answer: 40", "Answer: 41"), True),
    ],
    ids=["number", "verdict", "text", "always"],
)
async def test_answer_that_ends_in_a_result_is_not_written_again(kind: str, answers: tuple[str, ...], presented: bool):
    scripts = {f"agent_{i}": {"answer": text, "present": "All of it."} for i, text in enumerate(answers)}
    for i, script in enumerate(scripts.values()):
        script["vote"] = {"vote_for": answers[0] if i else answers[1], "reason": "r"}
    end = find_completion(await play(scripts, presentation=kind))
    assert (end.answer, end.presented) == ("All of it." if presented else answers[0], presented)


async def test_time_limit_ends_the_turn_with_the_answers_it_has():
    scripts = council(2, vote=VOTE_A)
    scripts["agent_b"]["answer"] = {"text": "late", "delay": 30}
    events = await play(scripts, timeout=0.3)
    assert (find_completion(events).answer, find_completion(events).limit) == ("answer 0.", "timeout")
    assert [notice.message for notice in only(events, Notice)] == ["agent_b did not finish within 0.3 seconds"]


async def test_agent_whose_request_takes_too_long_is_named_and_the_others_vote_without_it():
    scripts = council(3, vote=VOTE_A)
    scripts["agent_b"]["answer"] = {"error": "timeout"}
    events = await play(scripts)
    (failure,) = only(events, AgentFailed)
    assert (failure.agent_id, failure.step, failure.error) == ("agent_b", "answer", "ProviderTimeout")
    (decision,) = only(events, WinnerDecided)
    assert {ballot.agent_id for ballot in only(events, BallotCast)} == {"agent_a", "agent_c"}
    assert decision.agent_id != "agent_b"
    assert find_completion(events).limit is None


async def test_time_limit_without_an_answer_fails_the_turn_with_exit_code_4():
    events = await play(council(2, latency=30), timeout=0.1)
    end = events[-1]
    assert isinstance(end, TurnFailed) and end.exit_code == 4


async def test_max_concurrency_limits_the_requests_at_once():
    events = await play(council(4, vote=VOTE_A, latency=0.01), max_concurrency=2)
    running = most = 0
    for event in events:
        if isinstance(event, AgentStarted):
            running += 1
            most = max(most, running)
        elif isinstance(event, AnswerSubmitted | BallotCast):
            running -= 1
    assert most == 2


async def test_cancelled_turn_leaves_no_task_behind():
    agents = await agents_of(council(3, latency=30))
    before, started = asyncio.all_tasks(), asyncio.Event()
    outbox = Collector(lambda event: started.set() if isinstance(event, AgentStarted) else None)
    turn = asyncio.create_task(run_turn(Turn("s", 1, "q", 1), agents, CoordinationConfig(), outbox))
    await started.wait()
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


class HeldOutbox(Collector):
    """Lets nobody go on before the test does."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[asyncio.Event] = []

    async def wait_until_stored(self) -> None:
        self.waiting.append(stored := asyncio.Event())
        await stored.wait()


async def test_bug_in_one_agent_does_not_end_the_turn(caplog: pytest.LogCaptureFixture):
    agents = await agents_of(council(2, vote=VOTE_A))
    agents["agent_b"] = agent_of(config_of("agent_b", {}), BrokenProvider())
    events = await run(agents)
    assert find_completion(events).answer == "answer 0."
    assert only(events, AgentFailed)[0].message == "internal error: AttributeError"
    assert "AttributeError" in caplog.text


async def test_turn_ended_by_bugs_has_the_exit_code_of_a_bug():
    agents = {"agent_a": agent_of(config_of("agent_a", {}), BrokenProvider())}
    events = await run(agents)
    assert only(events, AgentFailed)[0].error == "InternalError"
    assert isinstance(events[-1], TurnFailed)
    assert events[-1].exit_code == 70


async def test_known_error_is_not_reported_as_a_bug(caplog: pytest.LogCaptureFixture):
    async def recall(_question: str, _options: RecallOptions) -> str:
        raise StoreUnavailable("the store cannot be reached", "check that it runs")

    config = config_of("agent_a", {})
    provider = await Providers().open(config.backend)
    agents = {"agent_a": agent_of(config, provider, recall=recall)}
    events = await run(agents)
    failed = only(events, AgentFailed)[0]
    assert (failed.error, failed.message, failed.hint) == (
        "StoreUnavailable", "the store cannot be reached", "check that it runs"
    )  # fmt: skip
    assert isinstance(events[-1], TurnFailed)
    assert events[-1].exit_code == 3
    assert caplog.text == ""


async def test_each_step_waits_until_the_log_holds_what_it_rests_on():
    agents = await agents_of(council(2, vote=VOTE_A, present="final"))
    outbox, waits = HeldOutbox(), list[int]()
    turn = asyncio.create_task(run_turn(Turn("s", 1, "q", 1), agents, CoordinationConfig(), outbox))
    while not (await asyncio.wait([turn], timeout=0.05))[0]:
        assert outbox.waiting, "the turn waits for nothing"
        assert isinstance(outbox.events[-1], AgentStarted)
        waits.append(len(outbox.waiting))
        for stored in outbox.waiting:
            stored.set()
        outbox.waiting.clear()
    check_order(outbox.events)
    assert waits == [2, 2, 1], "two answers, two votes and the presentation"


REPLIES = st.sampled_from([
    {"vote": "A", "reason": "r"}, {"vote": "B", "reason": "r"}, {"new_answer": "other"}, {"raw": "?"},
    {"error": "unavailable"}, {"error": "refused"}, {"error": "interrupted", "text": "half"},
])  # fmt: skip
ANSWERS = st.sampled_from(["one", "two", "", {"error": "auth"}, {"error": "interrupted", "text": "half"}])
SCRIPTS = st.lists(
    st.fixed_dictionaries({"answer": ANSWERS, "vote": st.lists(REPLIES, min_size=1, max_size=5), "present": ANSWERS}),
    min_size=1,
    max_size=5,
)


@given(SCRIPTS, st.integers(1, 4), st.booleans())
def test_turn_ends_in_order_whatever_the_models_do(scripts: list[dict[str, Any]], rounds: int, tools: bool):
    council = {f"a{i}": script for i, script in enumerate(scripts)}
    events = asyncio.run(play(council, max_rounds=rounds, tools=tools))
    check_order(events)
    assert len(only(events, RoundStarted)) <= rounds


async def test_turn_cut_off_after_any_event_asks_only_for_what_is_missing():
    scripts = council(3, vote=[VOTE_A, {"vote_for": "better", "reason": "r"}], present="final")
    scripts["agent_c"]["vote"] = [{"new_answer": "better"}, {"vote_for": "better", "reason": "r"}]
    whole: list[Event] = [e for e in await play(scripts) if not isinstance(e, AgentDelta)]
    requests = find_completion(whole).usage.requests
    for cut in range(1, len(whole)):
        past = whole[:cut]
        answered = only(past, AnswerSubmitted) + only(past, BallotCast)
        rest = {name: script | {"vote": _left_to_say(script["vote"], name, past)} for name, script in scripts.items()}
        events = await play(rest, past)
        end = find_completion(events)
        assert (end.winner, end.answer) == ("agent_c", "final"), f"cut after {cut} events"
        assert end.usage.requests <= requests, f"cut after {cut} events"
        done = {(e.agent_id, e.round) for e in answered}
        again = {(e.agent_id, e.round) for e in only(events, AnswerSubmitted) + only(events, BallotCast)}
        assert not done & again, f"cut after {cut} events: asked again"


def _left_to_say(votes: list[dict[str, Any]], agent: str, past: list[Event]) -> list[dict[str, Any]]:
    """What the agent's script still holds: a model that was asked in round 2 goes on with its next line."""
    said = [e for e in only(past, BallotCast) + only(past, AnswerSubmitted) if e.agent_id == agent and e.round == 2]
    return votes[len(said) :]


CUT = {"text": "The port is", "finish": "length"}


@pytest.mark.parametrize("tools", [True, False], ids=["tool calls", "constrained output"])
async def test_answer_cut_at_the_limit_of_tokens_is_continued_once(tools: bool):
    events = await play({"ann": {"answer": [CUT, " 8080."]}}, tools=tools)
    check_order(events)
    end = find_completion(events)
    assert (end.answer, end.truncated, end.usage.requests) == ("The port is 8080.", False, 2)
    assert "".join(event.text for event in only(events, AgentDelta)) == end.answer
    assert not only(events, Notice)


@pytest.mark.parametrize("rest", [{"text": " 80", "finish": "length"}, {"text": ""}, {"error": "unavailable"}])
async def test_answer_whose_end_stays_missing_is_marked_and_reported(rest: dict[str, Any]):
    events = await play({"ann": {"answer": [CUT, rest]}})
    check_order(events)
    end = find_completion(events)
    assert end.answer.startswith("The port is")
    assert (only(events, AnswerSubmitted)[0].truncated, end.truncated) == (True, True)
    assert "raise its backend.max_tokens" in only(events, Notice)[0].message


async def test_presentation_cut_at_the_limit_of_tokens_is_marked():
    scripts = council(2, vote=VOTE_A, present={"text": "final", "finish": "length"})
    events = await play(scripts)
    assert (find_completion(events).answer, find_completion(events).truncated) == ("finalfinal", True)
    assert not any(event.truncated for event in only(events, AnswerSubmitted))


async def test_ballot_cut_at_the_limit_of_tokens_is_repaired_or_explained():
    half = {"raw": '{"reason": "because', "finish": "length"}
    events = await play(council(2, vote=[half, VOTE_A]), tools=False)
    assert [ballot.truncated for ballot in only(events, BallotCast)] == [False, False]
    scripts = council(2, vote=VOTE_A) | {"agent_b": {"answer": "x", "vote": half}}
    (failure, *_) = only(await play(scripts, tools=False), AgentFailed)
    assert "its reply was cut at the limit of tokens" in failure.message
    assert "max_tokens" in failure.hint


@pytest.mark.parametrize("kind", [RoundStarted, AnswerSubmitted, BallotCast])
async def test_turn_of_another_team_is_finished_by_the_present_one(kind: type[Event]):
    events = await play(council(2, vote=VOTE_A))
    cut = events[: next(i for i, event in enumerate(events) if isinstance(event, kind)) + 1]
    others = {name: {"answer": f"{name} says so.", "vote": VOTE_A} for name in ("x", "y")}
    rest = await play(others, cut)
    check_order(rest)
    find_completion(rest)
    assert {event.agent_id for event in only(rest, BallotCast)} == {"x", "y"}
