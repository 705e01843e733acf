"""What a model server reports as used, and what massmem says was used: equal to the token, for 26 kinds of turns."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.insights import Insights
from massmem.core.messages import Usage
from massmem.core.prompts import parse_votable
from massmem.core.turn_result import TurnResult
from massmem.session.session import Session
from massmem.store import open_store
from massmem.store.lookup import read_results
from tests.support.json_server import serve_posts

Body = dict[str, Any]
Reply = tuple[int, str, bytes]
Answer = Callable[["CountingServer", Body], Any]
TOOLS = {"command": "python", "args": ["-m", "tests.support.tool_server"]}
LONG = "The port of the staging server is 8042, and it was changed on a Monday. " * 60


@dataclass
class CountingServer:
    """A model server that notes what it reports: each request has numbers of its own."""

    answer: Callable[["CountingServer", Body], str | dict[str, str] | Reply] = lambda server, body: "It is 42."
    url: str = ""
    prompt: int = 0
    completion: int = 0
    requests: list[Body] = field(default_factory=list[Body])
    lock: Any = field(default_factory=threading.Lock)

    def respond(self, body: bytes) -> Reply:
        request = json.loads(body)
        with self.lock:
            self.requests.append(request)
            number = len(self.requests)
        if "input" in request:
            return self._embed(request["input"], number)
        written = self.answer(self, request)
        if isinstance(written, tuple):
            return written
        return self.reply(written, number)

    def report(self, prompt: int, completion: int) -> dict[str, int]:
        with self.lock:
            self.prompt, self.completion = self.prompt + prompt, self.completion + completion
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def reply(
        self, written: str | dict[str, str], number: int, finish: str | None = "stop", *, ends: bool = True
    ) -> Reply:
        call = [{"index": 0, "id": f"c{number}", "type": "function", "function": written}]
        delta: dict[str, Any] = {"content": written} if isinstance(written, str) else {"tool_calls": call}
        base = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
        usage = self.report(3_000 + 7 * number, 10 + number)
        chunks: list[Body] = [
            base | {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}}], "usage": usage}
        ]
        if ends:
            chunks.append(base | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage})
        lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
        return 200, "text/event-stream", f"{lines}{'data: [DONE]' if ends else ''}\n\n".encode()

    def _embed(self, texts: list[str], number: int) -> Reply:
        rows = [{"index": i, "embedding": [1.0, len(text) % 7 + 1.0, number % 5]} for i, text in enumerate(texts)]
        usage = self.report(50 + number, 0)
        return 200, "application/json", json.dumps({"data": rows, "usage": usage}).encode()

    def count(self, word: str) -> int:
        """Return how many requests have the word in their last message."""
        return sum(word in str(request["messages"][-1]) for request in self.requests if "messages" in request)


def error(status: int = 500) -> Reply:
    return status, "application/json", b'{"error": {"message": "no", "type": "server_error"}}'


def offers(body: Body, name: str) -> bool:
    return any(tool["function"]["name"] == name for tool in body.get("tools", ()))


def vote(body: Body) -> dict[str, str]:
    labels = next(filter(None, (parse_votable(str(m["content"])) for m in reversed(body["messages"]))))
    return {"name": "vote", "arguments": json.dumps({"reason": "it is right", "choice": min(labels)})}


def differ(server: CountingServer, body: Body) -> str | dict[str, str]:
    """Agents that give different answers, and vote."""
    return vote(body) if offers(body, "vote") else f"My answer is number {len(server.requests)}, for a reason."


def once(first: Answer, then: Answer = differ) -> Answer:
    """The first request gets one answer, all others another."""
    return lambda server, body: (first if len(server.requests) == 1 else then)(server, body)


def extract(server: CountingServer, body: Body) -> Any:
    """Answers, and facts for the memory."""
    if "memory" in str(body["messages"][0]).lower() and "fact" in str(body["messages"][0]).lower():
        return json.dumps({"memory": [{"id": "0", "text": "The port is 8042.", "attributed_to": "user"}]})
    return differ(server, body)


def garble(server: CountingServer, body: Body) -> Any:
    return "no facts, but words" if str(extract(server, body)).startswith('{"memory"') else differ(server, body)


def list_items(server: CountingServer, body: Body) -> Any:
    """Fills in the forms of the shapes: two items each, the first the same; confirms all; criticises and revises."""
    asked = str(body["messages"][-1]["content"])
    if '"checks"' in asked or '"pairs"' in asked:
        return json.dumps({"checks": [{"item": number, "stand": "confirm"} for number in range(1, 9)]})
    if '"items"' in asked:
        words = ("Backups grow old", "Nobody reads logs", "Disks fill overnight")[len(server.requests) % 3]
        own = {"title": words, "reason": ""}
        return json.dumps({"items": [{"title": "The port is closed", "reason": "a firewall stops it"}, own]})
    return f"A text of {len(server.requests)} words."


@dataclass(frozen=True)
class Kind:
    answer: Callable[[CountingServer, Body], Any] = differ
    agents: int = 1
    backend: dict[str, Any] = field(default_factory=dict[str, Any])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of the team."""
    questions: Sequence[str] = ("What is the port?",)
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    """For the question."""
    purposes: frozenset[str] = frozenset({"answer"})
    memory: bool = False
    embeds: bool = False


def coordinate(**settings: Any) -> dict[str, Any]:
    return {"coordination": settings}


COUNCIL = frozenset({"answer", "vote", "present"})
FORM = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
KINDS: dict[str, Kind] = {
    "one agent": Kind(),
    "three turns": Kind(questions=("What is the port?", "And the host?", "And the user?")),
    "council": Kind(agents=3, purposes=COUNCIL),
    "council without a presentation": Kind(
        agents=2, settings=coordinate(presentation="as_is"), purposes=COUNCIL - {"present"}
    ),
    "report": Kind(agents=2, settings=coordinate(presentation="report"), purposes=COUNCIL | {"report"}),
    "union": Kind(
        answer=list_items,
        agents=3,
        settings=coordinate(shape="union"),
        purposes=frozenset({"items", "check", "present"}),
    ),
    "revise": Kind(
        answer=list_items,
        agents=2,
        settings=coordinate(shape="revise"),
        purposes=frozenset({"answer", "items", "check"}),
    ),
    "votes in a bad form": Kind(
        answer=lambda s, b: {"name": "vote", "arguments": "{}"} if offers(b, "vote") else differ(s, b),
        agents=2,
        purposes=COUNCIL,
    ),
    "answers compared": Kind(
        answer=lambda s, b: '{"difference": "", "same": true}' if "same" in str(b["messages"][-1]) else differ(s, b),
        agents=4,
        settings=coordinate(depth="adaptive"),
        questions=("Why is the sky blue, in a sentence?",),
        purposes=frozenset({"answer", "compare"}),
    ),
    "form that is repaired": Kind(
        answer=once(lambda _s, _b: "It is eighty.", lambda _s, _b: '{"port": 8042}'),
        more={"answer_schema": FORM},
        purposes=frozenset({"answer", "present"}),
    ),
    "refused, then sent again": Kind(answer=once(lambda _s, _b: error(503))),
    "broken off after its usage, then sent again": Kind(
        answer=once(lambda s, _: s.reply("It is", 1, ends=False)),
    ),
    "broken off twice, given up": Kind(
        answer=lambda s, _: s.reply("It is", len(s.requests), ends=False), backend={"max_retries": 1}
    ),
    "refused for good": Kind(answer=lambda _s, _b: error(400), purposes=frozenset({"answer"})),
    "one of three agents fails": Kind(answer=once(lambda _s, _b: error(400)), agents=3, purposes=COUNCIL),
    "fallback": Kind(
        answer=lambda s, b: error(400) if b["model"] == "stub" else differ(s, b),
        backend={"fallback": [{"type": "openai", "model": "other"}]},
    ),
    "cut reply that is continued": Kind(
        answer=once(lambda s, _: s.reply("It is a", 1, "length"), lambda _s, _b: " port with four digits.")
    ),
    "empty reply": Kind(answer=lambda _s, _b: ""),
    "content filter": Kind(answer=lambda s, _: s.reply("It", len(s.requests), "content_filter")),
    "question for a value": Kind(
        answer=lambda s, b: (
            {"name": "ask_user", "arguments": '{"param": "order_id", "prompt": "Which order?"}'}
            if len(s.requests) == 1
            else '{"intent": "answer", "provided": true, "value": "twelve"}'
            if "order_id" in str(b["messages"]) and not b.get("tools")
            else differ(s, b)
        ),
        settings={"params": {"order_id": {"description": "number of the order"}}, **coordinate(ask_user=True)},
        questions=("Where is my order?", "well, I believe it has the number twelve"),
        purposes=frozenset({"answer", "reply"}),
    ),
    "history that is compressed": Kind(
        backend={"context_window": 6_000},
        questions=(LONG * 2, LONG * 2, LONG * 2, LONG * 2),
        purposes=frozenset({"answer", "summary"}),
    ),
    "question read in parts": Kind(
        backend={"context_window": 4_000}, questions=(LONG * 8,), purposes=frozenset({"answer", "summary"})
    ),
    "limit of tokens": Kind(agents=3, settings=coordinate(max_tokens=7_000), purposes=frozenset({"answer"})),
    "facts extracted": Kind(answer=extract, memory=True, purposes=frozenset({"answer", "extract"})),
    "facts that cannot be read": Kind(answer=garble, memory=True, purposes=frozenset({"answer", "extract"})),
    "memory embedded by a provider": Kind(
        embeds=True,
        questions=("What is the port of staging?", "Which port has staging?", "And what is the port?"),
        purposes=frozenset({"answer", "embed"}),
    ),
    "council with facts and embeddings": Kind(
        answer=extract,
        agents=2,
        memory=True,
        embeds=True,
        questions=("What is the port of staging?", "Which port has staging?"),
        purposes=COUNCIL | {"extract", "embed"},
    ),
}


def configure(kind: Kind, url: str, store: str) -> TeamConfig:
    backend = {
        "type": "openai",
        "model": "stub",
        "base_url": url,
        "api_key": "sk-stub",
        "max_retries": 2,
    } | kind.backend
    for fallback in backend.get("fallback", ()):
        fallback |= {"base_url": url, "api_key": "sk-stub"}
    model = {"provider": "openai", "model": "stub", "base_url": url, "api_key": "sk-stub"}
    persistent: dict[str, Any] = {"enabled": kind.memory or kind.embeds, "session_name": None}
    persistent |= {"llm": model} if kind.memory else {}
    persistent |= {"embedding": model} if kind.embeds else {}
    agents = [{"id": f"agent_{i}", "system_message": f"You are {i}.", "backend": backend} for i in range(kind.agents)]
    return TeamConfig.model_validate(
        {"store": {"url": store}, "agents": agents, "memory": {"persistent_memory": persistent}, **kind.settings}
    )


async def play(kind: Kind, server: CountingServer, home: Path) -> tuple[list[TurnResult], list[TurnResult]]:
    """Ask the questions, and record; return what each turn came to live, and by the log."""
    url = f"sqlite:///{home}/turns.db"
    config = configure(kind, server.url, url)
    session = await Session.open(config, home=home)
    live: list[TurnResult] = []
    try:
        for question in kind.questions:
            result = TurnResult()
            async with aclosing(session.ask(question, **kind.more)) as events:
                async for event in events:
                    result.feed(event)
            live.append(result)
            await session.context()  # what is prepared for the next turn is done then
        store, name = await open_store(url, home), session.id
        async with asyncio.timeout(60):
            while config.memory.persistent_memory.enabled:
                counts = await store.count_recordings(name)
                if counts.pending == counts.retrying:
                    break
                await asyncio.sleep(0.1)
    finally:
        await session.close()
    try:
        record = await store.get_session(name)
        assert record is not None
        async with aclosing(read_results(store, record)) as results:
            return live, [result async for result in results]
    finally:
        await store.close()


@pytest.mark.parametrize("name", KINDS)
async def test_meter_counts_what_the_server_reports(name: str, tmp_path: Path):
    kind = KINDS[name]
    server = CountingServer(kind.answer)
    with serve_posts(server.respond) as server.url:
        live, stored = await play(kind, server, tmp_path)
    total = sum((turn.usage for turn in stored), Usage())
    spent = {purpose for turn in stored for purpose in turn.spent}
    assert (total.prompt, total.completion) == (server.prompt, server.completion), [turn.spent for turn in stored]
    assert spent == kind.purposes
    assert total.requests == len(server.requests)
    for turn in stored:
        assert sum(turn.spent.values(), Usage()) == turn.usage
    last, of_log = live[-1], stored[-1]
    later = {"extract", "embed", "summary"} & of_log.spent.keys()
    if not later:
        assert (last.usage, last.spent) == (of_log.usage, of_log.spent), "live as in the log"
    insights = Insights()
    for turn in stored:
        insights.add_turn(turn)
    figures = insights.to_json()
    assert sum(part["tokens"] for part in figures["spent"].values()) == server.prompt + server.completion
