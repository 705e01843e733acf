"""`/api/v1/sessions/SESSION/context`: what each agent would be sent next, part by part, with the tokens of each."""

import json
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field

from massmem.core.prompts import build_system_prompt
from massmem.core.records import MessageRecord
from massmem.memory.tokens import Buffer
from massmem.server.dependencies import Authorized, CheckedRoute, SessionPath
from massmem.server.errors import PROBLEMS
from massmem.server.schemas import Body, SmallBody
from massmem.session.history import AgentContext
from massmem.session.session import Session
from massmem.session.team import Team

router = APIRouter(route_class=CheckedRoute, prefix="/api/v1", tags=["sessions"], responses=PROBLEMS)

MAX_TEXT = 20_000
"""Characters of a part that are returned."""


class ContextQuestion(SmallBody):
    question: Annotated[str, Field(max_length=10_000, examples=["Why is the sky blue?"])] = ""
    """With it, the agents recall memories. Nothing is asked."""


PartKind = Literal["system", "tools", "summary", "history", "memories", "question"]


class ContextPart(Body):
    kind: PartKind
    """system: who the agent is; summary: stands for old messages; history: messages as they were said."""
    role: str | None
    tokens: int
    """By our count, corrected by what the provider has reported."""
    text: str
    length: int


class Compression(Body):
    removed: int
    remaining: int
    by: str
    """model: a model wrote the summary; extract: sentences were taken from the messages."""


class ContextEntry(Body):
    agent_id: str
    name: str
    model: str
    window: int
    is_assumed: bool
    threshold: float | None
    """The share of the window at which the prompt is compressed; null: only when the provider refuses."""
    tokens: int
    parts: list[ContextPart]
    compression: Compression | None


class ContextView(Body):
    agents: list[ContextEntry]


@router.post("/sessions/{session_id}/context")
async def context(session_id: SessionPath, body: ContextQuestion, caller: Authorized) -> ContextView:
    """What each agent would be sent with the next question. Nothing is asked and nothing is stored."""
    record = await caller.service.conversations.find(caller.owner, session_id)
    team = await caller.service.teams.find(record)
    session = Session(team, record, owner=caller.owner)
    try:
        contexts = await session.preview(body.question)
    finally:
        await session.close()
    entries: list[ContextEntry] = []
    for agent_context in contexts.values():
        summary = await team.store.get_latest_summary(record.session_id, agent_context.prompt.agent_id)
        entries.append(_show_context(team, agent_context, summary))
    return ContextView(agents=entries)


def _show_context(team: Team, context: AgentContext, summary: MessageRecord | None) -> ContextEntry:
    compressor, prompt = context.compressor, context.prompt
    config, meter = compressor.config, compressor.meter
    parts = _list_parts(team, context, meter.buffer)
    settings = config.memory.compression
    compression = None
    if summary is not None and summary.content == prompt.summary:
        removed, remaining, by = (summary.metadata.get(name) for name in ("removed", "kept", "by"))
        compression = Compression(removed=int(removed or 0), remaining=int(remaining or 0), by=str(by or ""))
    return ContextEntry(
        agent_id=config.id,
        name=config.display_name,
        model=config.backend.model or config.backend.type,
        window=meter.window,
        is_assumed=meter.assumed,
        threshold=settings.trigger_threshold if settings.proactive else None,
        tokens=sum(part.tokens for part in parts),
        parts=parts,
        compression=compression,
    )


def _list_parts(team: Team, context: AgentContext, buffer: Buffer) -> list[ContextPart]:
    prompt = context.prompt
    specs = [
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tool in team.tools.get_toolbox(prompt.agent_id).specs
    ]
    parts = [
        _make_part("system", build_system_prompt(prompt.system), buffer),
        _make_part("tools", json.dumps(specs, indent=1, ensure_ascii=False) if specs else "", buffer),
        _make_part("summary", prompt.summary, buffer),
        *(_make_part("history", m.message.content, buffer, m.message.role) for m in prompt.history),
        _make_part("memories", prompt.memories, buffer),
        _make_part("question", prompt.question, buffer),
    ]
    return [part for part in parts if part.length]


def _make_part(kind: PartKind, text: str, buffer: Buffer, role: str | None = None) -> ContextPart:
    return ContextPart(kind=kind, role=role, tokens=buffer.cost_of_text(text), text=text[:MAX_TEXT], length=len(text))
