"""What is left of a conversation that overflows its window, what a long one costs, and how fast its view is built."""

import asyncio
import os
import time
from collections import defaultdict
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from massmem.config.load import resolve_agents
from massmem.config.models import CompressionConfig, TeamConfig
from massmem.core.events import TurnCompleted, TurnFailed
from massmem.memory.tokens import count_tokens
from massmem.providers import Providers
from massmem.providers.learnt import LearntModels
from massmem.session.history import History
from massmem.session.recall import SessionMemory
from massmem.session.session import Session
from massmem.session.windows import Windows
from scripts.benches import teams
from scripts.benches.process import workspace
from scripts.benches.refusing import Refusing, Seen
from scripts.benches.rows import Row, at_least, at_most, exactly, reported
from scripts.benches.session import ID, LONG, filled
from scripts.benches.texts import conversation

LIMIT = 8_000
FACTS = 60
SEEDS = (1, 2)
OVERFLOWS = (("60,000 tokens", 60_000, 1.0), ("16 times the window", 16 * LIMIT, 0.97))
"""Name, tokens of the conversation, least share of the facts that the model is shown."""

MOST_WASTED = 20_000
"""Tokens of refused and summary requests, for each 60,000 tokens of conversation."""

EARLY, LATE = 20, 200
THRESHOLD = CompressionConfig().trigger_threshold

MOST_TIMES = 1.1
MOST_CPU_MS = 20
SHORT = 25_000
"""Messages that fill a view, too: a shorter session has less to show."""
MOST_GROWTH = 1.5
"""Of the CPU of a view from SHORT to LONG messages: four times as many, and nothing in it grows with them."""
RUNS = 9


AGENT = "agent"
RECALLED = 250
"""Tokens that may be recalled; the default is 1,000."""


class Massmem:
    """One agent in one session on a server at `base_url`. What is sent to it is massmem's own doing.

    The window is not in the configuration: it is learnt from the server, as with most servers.
    """

    def __init__(self, base_url: str, workdir: str) -> None:
        backend = {"type": "openai", "model": "stub", "base_url": base_url, "api_key": "none"}
        memory = {"retrieval": {"max_tokens": RECALLED}}
        team = {
            "agents": [{"id": AGENT, "backend": backend}],
            "memory": memory,
            "store": {"url": f"sqlite:///{workdir}/log.db"},
        }
        self._runner = asyncio.Runner()
        self._session = self._runner.run(Session.open(TeamConfig.model_validate(team), home=Path(workdir) / "home"))

    def say(self, text: str) -> str:
        """One user turn; returns the answer."""
        return self._runner.run(self._ask(text))

    def tool(self, name: str, text: str) -> None:
        """A tool's result arrives between two turns."""
        self._runner.run(self._session.add_tool_result(AGENT, name, text))

    def close(self) -> None:
        self._runner.run(self._session.close())
        self._runner.close()

    async def _ask(self, text: str) -> str:
        async with aclosing(self._session.ask(text)) as events:
            async for event in events:
                match event:
                    case TurnCompleted():
                        return event.answer
                    case TurnFailed():
                        raise RuntimeError(event.message)
                    case _:
                        pass
        raise RuntimeError("the turn did not end")


@dataclass
class _Kept:
    """Shares by kind of fact, and what the conversation cost."""

    shown: dict[str, list[bool]] = field(default_factory=lambda: defaultdict[str, list[bool]](list))
    lost_turns: int = 0
    refused: int = 0
    wasted: int = 0
    prompts: list[int] = field(default_factory=list[int])


def run() -> list[Row]:
    rows: list[Row] = []
    for name, size, least in OVERFLOWS:
        rows += _retention(name, size, least)
    rows += _flat()
    with workspace() as home:
        rows += asyncio.run(_views(home))
    return rows


def _retention(name: str, size: int, least: float) -> list[Row]:
    kept = _Kept()
    for seed in SEEDS:
        play(seed, FACTS, size, kept)
    shares = {kind: mean(found) for kind, found in sorted(kept.shown.items())}
    note = ", ".join(f"{kind} {100 * share:.1f}" for kind, share in shares.items())
    most = MOST_WASTED * len(SEEDS) * size / OVERFLOWS[0][1]
    return [
        at_least(f"{name}: facts in the last prompt", 100 * shares["all"], "%", 100 * least, note),
        exactly(f"{name}: corrections are the last word", 100 * shares["corrected last"], "%", 100),
        exactly(f"{name}: user turns lost", kept.lost_turns, "", 0),
        at_most(f"{name}: refused and summary requests", kept.wasted, "tokens", most, f"{kept.refused} refused"),
        reported(f"{name}: prompt of a question", mean(kept.prompts), "tokens", f"limit {LIMIT:,}"),
    ]


def play(seed: int, facts: int, size: int, kept: _Kept) -> None:
    """Hold one conversation and ask for everything that was planted in it."""
    steps, planted = conversation(seed, facts, size)
    with workspace() as folder, Refusing(LIMIT) as server:
        target = Massmem(server.base_url, str(folder))
        try:
            for step in steps:
                if step.by_tool:
                    target.tool("log", step.text)
                else:
                    prompt = _say(target, server, step.text, step.reply)
                    kept.lost_turns += prompt is None or step.text not in prompt.text
            for fact in planted:
                prompt = _say(target, server, fact.question, "Noted.")
                text = prompt.text if prompt else ""
                for kind in ("all", fact.source, "same words" if fact.same_words else "other words"):
                    kept.shown[kind].append(fact.value in text)
                if fact.stale:
                    kept.shown["corrected last"].append(text.rfind(fact.value) > text.rfind(fact.stale))
                kept.prompts.append(prompt.tokens if prompt else 0)
        finally:
            target.close()
        kept.refused += sum(seen.refused for seen in server.seen)
        kept.wasted += sum(seen.tokens for seen in server.seen if seen.refused or seen.summary)


def _say(target: Massmem, server: Refusing, text: str, reply: str) -> Seen | None:
    """The last prompt of the turn that the server took."""
    server.replies, first = [reply], len(server.seen)
    target.say(text)
    taken = [seen for seen in server.seen[first:] if not seen.refused and not seen.summary]
    return taken[-1] if taken else None


def _flat() -> list[Row]:
    """Prompt tokens of a turn, early and late in one session of turns of the same size."""
    steps = [step for step in conversation(7, 3, 400 * LATE)[0] if not step.by_tool][:LATE]
    prompts: list[int] = []
    whole = unknown = 0
    with workspace() as folder, Refusing(LIMIT) as server:
        target = Massmem(server.base_url, str(folder))
        try:
            for step in steps:
                seen = _say(target, server, step.text, step.reply)
                prompts.append(seen.tokens if seen else 0)
                if not any(seen.refused for seen in server.seen):
                    unknown = len(prompts)
                whole += count_tokens(step.text) + count_tokens(step.reply)
        finally:
            target.close()
    early, late = prompts[EARLY - 1], prompts[-1]
    shares = (
        f"turns 1 to {EARLY} {mean(prompts[:EARLY]):,.0f} on average, the last {EARLY} {mean(prompts[-EARLY:]):,.0f}"
    )
    times = f"prompt of turn {len(prompts)} / of turn {EARLY}"
    highest, threshold = max(prompts[unknown:]), THRESHOLD * LIMIT
    saw = (
        f"{highest:,} / {threshold:,.0f}: prompts grow to it, are compressed, and grow again; up to {max(prompts):,} "
        f"in turns 1 to {unknown}: until the server refuses one, nobody says how much it reads"
    )
    return [
        at_most(times, late / early, "x", MOST_TIMES, f"{late:,} / {early:,}; {shares}"),
        at_most("highest prompt once the window is known / threshold", highest / threshold, "x", 1, saw),
        reported(f"prompt of turn {len(prompts)} / the whole history", late / whole, "x", f"history {whole:,} tokens"),
    ]


async def _views(home: Path) -> list[Row]:
    long, short = await _building(home, LONG), await _building(home, SHORT)
    note = f"{long:.2g} / {short:.2g} ms"
    return [
        at_most(f"view of a session of {LONG:,} messages: CPU", long, "ms", MOST_CPU_MS),
        at_most(f"the same / of one of {SHORT:,} messages", long / short, "x", MOST_GROWTH, note),
    ]


async def _building(home: Path, messages: int) -> float:
    """CPU milliseconds of the view of a long session, as each turn builds it."""
    config = teams.config(teams.scripted(1, home, 0))
    agents = resolve_agents(config, os.environ)
    providers = Providers()
    chat = {agent.id: await providers.open(agent.backend) for agent in agents}
    async with filled(home / str(messages), messages) as store:
        last = await store.get_last_turn(ID)
        windows = Windows(agents, LearntModels())
        history = History(store, SessionMemory(config.memory, home, store, agents), agents, windows)
        turn, question = (last.turn if last else 0) + 1, "What was decided?"
        await history.build_contexts(ID, turn, question, chat)
        spent: list[float] = []
        for _ in range(RUNS):
            start = time.process_time()
            await history.build_contexts(ID, turn, question, chat)
            spent.append(1000 * (time.process_time() - start))
        await history.close()
        await windows.close()
    return median(spent)
