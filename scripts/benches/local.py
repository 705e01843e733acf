"""Where the time of a turn on the embedded model goes, beside llama.cpp alone in the same run.

Needs the model (`massmem models fetch`) and a few minutes. On a busy machine only the ratios say something.
"""

import asyncio
import importlib
import os
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, cast

from massmem.config.load import load_config
from massmem.config.models import NO_STORE, TeamConfig
from massmem.core.errors import MissingModelError
from massmem.core.events import AgentDelta, AgentStarted, TurnCompleted
from massmem.core.prompts import build_system_prompt
from massmem.providers.local import CONTEXT_WINDOW, LIBRARY
from massmem.providers.weights import require_weights
from massmem.session.session import Session
from massmem.session.team import Team
from scripts.benches.process import BenchError, workspace
from scripts.benches.rows import ROOT, Row, at_most, missing, reported

QUESTIONS = (
    "A shop sells pens at 3 for 2 dollars. How much do 18 pens cost?",
    "Why does ice float on water?",
    "Name one advantage and one drawback of electric cars.",
)
"""A short result, an explanation, an open question."""

PERSONAS = {
    "analyst": "You give the facts that decide the question, in at most 80 words.",
    "skeptic": "You avoid common mistakes and say what is certain, in at most 80 words.",
    "writer": "You answer exactly what was asked, in plain words, in at most 80 words.",
}
"""The team that was shipped at first. Its winner wrote the final answer from all three."""

MOST_OF_PERSONAS = 0.45
MOST_TO_FIRST_TEXT = 4.0
MOST_OF_BARE = 1.1
PAIRS = 3
REPLY_TOKENS = 350
"""More than the replies have: massmem would continue one that is cut."""


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """Seconds of one turn."""

    total: float
    first_text: float
    """Until the first word of an answer could be shown."""
    answers: float
    votes: float
    presentation: float


def run() -> list[Row]:
    try:
        weights = require_weights("")
    except MissingModelError as e:
        return [missing("a turn on the embedded model", f"{e.message}; {e.hint}")]
    with workspace() as home:
        return asyncio.run(_run(weights, home))


async def _run(weights: Path, home: Path) -> list[Row]:
    team, _ = load_config(ROOT / "configs/local.yaml", {})
    shipped = await _play_turns(team, home)
    personas = await _play_turns(_build_personas(team), home)
    total, first = fmean(turn.total for turn in shipped), max(turn.first_text for turn in shipped)
    former = fmean(turn.total for turn in personas)
    return [
        at_most("a turn / that of three personas", total / former, "x", MOST_OF_PERSONAS, f"{former:.1f} s"),
        at_most("first text of an answer", first, "s", MOST_TO_FIRST_TEXT, "the latest of the turns"),
        *_list_parts("the shipped team", shipped),
        *_list_parts("three personas", personas),
        await _compare_with_bare(team, weights, home),
    ]


def _list_parts(name: str, turns: Sequence[TurnTimes]) -> list[Row]:
    parts = {
        "turn": fmean(turn.total for turn in turns),
        "answers": fmean(turn.answers for turn in turns),
        "votes": fmean(turn.votes for turn in turns),
        "presentation": fmean(turn.presentation for turn in turns),
    }
    return [reported(f"{name}: {part}", seconds, "s") for part, seconds in parts.items()]


def _build_personas(team: TeamConfig) -> TeamConfig:
    agents = tuple(
        agent.model_copy(update={"id": name, "system_message": text})
        for agent, (name, text) in zip(team.agents, PERSONAS.items(), strict=True)
    )
    settings = team.coordination.model_copy(
        update={"presentation": "synthesize", "max_rounds": 2, "early_stop": False, "max_concurrency": 3}
    )
    return team.model_copy(update={"agents": agents, "coordination": settings})


async def _play_turns(config: TeamConfig, home: Path) -> list[TurnTimes]:
    """Ask every question once, in sessions without memory; the model is loaded before the first."""
    store = config.store.model_copy(update={"url": NO_STORE})
    team = await Team.open(config.model_copy(update={"store": store}), home=home)
    try:
        await team.start()
        await _play(team, "Say hello.")
        return [await _play(team, question) for question in QUESTIONS]
    finally:
        await team.close()


async def _play(team: Team, question: str) -> TurnTimes:
    session = await Session.on(team)
    started = time.perf_counter()
    first_text = None
    began: dict[str, float] = {}
    try:
        async with aclosing(session.ask(question)) as events:
            async for event in events:
                now = time.perf_counter() - started
                match event:
                    case AgentDelta(channel="text") if first_text is None:
                        first_text = now
                    case AgentStarted(step=step):
                        began.setdefault(step, now)
                    case TurnCompleted():
                        votes, presentation = began.get("vote", now), began.get("present", now)
                        votes_end = max(votes, presentation)
                        return TurnTimes(now, first_text or now, votes, votes_end - votes, now - votes_end)
                    case _:
                        pass
    finally:
        await session.close()
    raise BenchError("a turn on the embedded model did not complete")


async def _compare_with_bare(team: TeamConfig, weights: Path, home: Path) -> Row:
    """One agent alone beside the library itself: the same prompt, the same tokens."""
    agent = team.agents[0]
    backend = agent.backend.model_copy(update={"temperature": 0.0, "max_tokens": REPLY_TOKENS})
    alone = team.model_copy(update={"agents": (agent.model_copy(update={"backend": backend}),)})
    server = _open_bare(weights)
    system = build_system_prompt(agent.system_message or "")
    ratios: list[float] = []
    store = alone.store.model_copy(update={"url": NO_STORE})
    opened = await Team.open(alone.model_copy(update={"store": store}), home=home)
    try:
        await opened.start()
        await _play(opened, "Say hello.")
        _ask_bare(server, system, "Say hello.")
        for question in QUESTIONS[:PAIRS]:
            ours = (await _play(opened, question)).total
            bare = await asyncio.to_thread(_ask_bare, server, system, question)
            ratios.append(ours / bare)
    finally:
        await opened.close()
    note = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return at_most("one agent alone / llama.cpp alone", median(ratios), "x", MOST_OF_BARE, note)


def _open_bare(weights: Path) -> Any:
    library = cast(Any, importlib.import_module(LIBRARY))
    parameters = library.CommonParams()
    parameters.model.path = str(weights)
    parameters.n_ctx = CONTEXT_WINDOW
    parameters.n_parallel = 1
    parameters.fit_params = False
    parameters.verbosity = -1
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        threads.n_threads = os.cpu_count() or 1
    return library.Server(parameters)


def _ask_bare(server: Any, system: str, question: str) -> float:
    """Return the seconds that a reply takes."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    started = time.perf_counter()
    server.handle_chat_completions({"messages": messages, "temperature": 0.0, "max_tokens": REPLY_TOKENS})
    return time.perf_counter() - started
