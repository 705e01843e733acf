"""Who sees what, step by step against a plain model: a list, and `Scope.allows` written out by hand."""

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import RecallOptions, Scope, Selection
from tests.support.memories import fact, make_episode, open_disk_memory

T = TypeVar("T")

AGENTS = ("a", "b", "c")
SESSIONS = ("s", "t")
GROUP = {"s": "", "t": "g"}
MANY = RecallOptions(1_000_000)

who = st.sampled_from((*AGENTS, "user"))
where = st.sampled_from(SESSIONS)
turns = st.integers(1, 3)
SCOPES = [
    Scope(session, agent, turn, everywhere, named)
    for turn, session, agent, everywhere, named in product(
        (2, 3, 1, 4), SESSIONS, ("a", "b", "d"), (False, True), (None, "g", "h")
    )
]
QUIET = 90
"""Steps between restarts, and between deletions, which rewrite the index: the rule is to be tested, not the disk."""


@dataclass(frozen=True)
class Said:
    """What the model remembers of a memory."""

    marker: str
    session: str
    turn: int
    agent: str
    kind: str


class Visibility(RuleBasedStateMachine):
    """Everything shares the word "kites", so that only the rule decides what is found."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._loop = asyncio.new_event_loop()
        self._memory = self._opened()
        self._said: list[Said] = []
        self._won: set[tuple[str, int, str]] = set()
        self._number = 0
        self._steps = 0
        self._quiet_until = {"forget": QUIET, "restart": QUIET}
        self._scopes = cycle(SCOPES)
        self._positions = dict.fromkeys(SESSIONS, 0)

    def teardown(self) -> None:
        self._run(self._memory.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._folder.cleanup()

    def _opened(self) -> IndexedMemory:
        return open_disk_memory(Path(self._folder.name) / "index")

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def _marker(self) -> str:
        self._number += 1
        return f"mk{self._number}x"

    @rule(agent=who, session=where, turn=turns, late=st.booleans())
    def speak(self, agent: str, session: str, turn: int, late: bool) -> None:
        """late: recorded after the end of its turn, so that the winner is known already."""
        marker, position = self._marker(), self._positions[session]
        won = late and (session, turn, agent) in self._won
        episode = make_episode(f"kites {marker}", position, turn, agent, session, group=GROUP[session], won=won)
        self._positions[session] += 1
        self._run(self._memory.record([episode]))
        self._run(self._memory.record([episode]))
        self._said.append(Said(marker, session, turn, agent, "episode"))
        if (session, turn, agent) in self._won and not won:
            self._run(self._memory.complete_turns([(session, turn, agent)]))

    @rule(agent=st.sampled_from(AGENTS), session=where, turn=turns)
    def learn(self, agent: str, session: str, turn: int) -> None:
        marker = self._marker()
        won = (session, turn, agent) in self._won
        learned = fact(f"kites {marker}", turn, agent, session, (f"m{marker}",), group=GROUP[session], won=won)
        assert self._run(self._memory.add_facts([learned])) == 1
        assert self._run(self._memory.add_facts([learned])) == 0
        self._said.append(Said(marker, session, turn, agent, "fact"))

    @rule(session=where, turn=turns, winner=st.sampled_from(AGENTS))
    def complete(self, session: str, turn: int, winner: str) -> None:
        """A turn has one winner; a second one is no rule of the memory's."""
        if not any(s == session and t == turn for s, t, _ in self._won):
            self._run(self._memory.complete_turns([(session, turn, winner)]))
            self._won.add((session, turn, winner))

    @precondition(lambda self: self._steps >= self._quiet_until["forget"])
    @rule(session=where, agent=st.one_of(st.none(), who), turn=st.one_of(st.none(), turns))
    def forget(self, session: str, agent: str | None, turn: int | None) -> None:
        gone = [s for s in self._said if s.session == session and agent in (None, s.agent) and turn in (None, s.turn)]
        assert self._run(self._memory.forget(Selection(session, agent, turn))) == len(gone)
        self._said = [s for s in self._said if s not in gone]

    @precondition(lambda self: self._steps >= self._quiet_until["restart"])
    @rule()
    def restart(self) -> None:
        self._quiet_until["restart"] = self._steps + QUIET
        self._run(self._memory.close())
        self._memory = self._opened()

    @invariant()
    def everyone_sees_what_they_may(self) -> None:
        """Four of the scopes at each step, all of them in turn."""
        self._steps += 1
        for _ in range(4):
            scope = next(self._scopes)
            found = self._run(self._memory.recall("kites", scope, MANY))
            expected = {s.marker for s in self._said if self._may(s, scope)}
            assert {word for word in found.text.split() if word.startswith("mk")} == expected
            assert {m.text.split()[1] for m in found.memories} == expected

    def _may(self, s: Said, scope: Scope) -> bool:
        here = s.session == scope.session_id
        if not (here or scope.all_sessions or (scope.group is not None and GROUP[s.session] == scope.group)):
            return False
        if s.agent == scope.agent_id:
            return not (here and s.turn > scope.turn)
        if here and s.turn >= scope.turn:
            return False
        return s.agent == "user" or (s.session, s.turn, s.agent) in self._won

    @invariant()
    def nothing_is_lost_or_twice(self) -> None:
        if self._number % 5 == 0:
            listed = [m.text.split()[1] for m in self._run(self._memory.list(Selection(), 10_000))]
            assert sorted(listed) == sorted(s.marker for s in self._said)


def walk(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Visibility,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )


def test_visibility_follows_the_model():
    """About 300 steps."""
    walk(3, 100)


@pytest.mark.full
def test_visibility_follows_the_model_for_long():
    """More than 10,000 steps."""
    walk(110, 100)
