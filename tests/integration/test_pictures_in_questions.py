"""Pictures in questions: what agents see of them in this turn and later, and who describes them to whom."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, ProviderError
from massmem.core.events import AnswerSubmitted, ContextMeasured, Event, Notice, TurnCompleted, TurnStarted
from massmem.core.messages import Attachment, make_attachment
from massmem.session.session import Session
from massmem.store import open_store
from tests.support.pictures import PNG
from tests.support.sessions import collect
from tests.unit.providers.test_acp import backend

PLAN = make_attachment("plan.png", "image/png", PNG)
SEEN = f"plan.png (image/png, {len(PNG)} bytes, {PLAN.file.hash[:8]})"


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".massmem"


def team(*blind: str, agents: Sequence[str] = ("ann", "bob"), **more: Any) -> TeamConfig:
    """A team whose agents answer with what they see. blind: those that see nothing. more: sections."""
    script = {"answer": "{seen}", "latency": 0.05}  # a stop is faster
    backends = {name: {"type": "scripted", "script": script, "vision": name not in blind} for name in agents}
    memory = {"persistent_memory": {"enabled": False}}
    return TeamConfig.model_validate(
        {"agents": [{"id": name, "backend": backends[name]} for name in agents], "memory": memory, **more}
    )


async def ask(
    config: TeamConfig, folder: Path, question: str, *shown: Attachment, session_id: str | None = None
) -> tuple[str, list[Event]]:
    async with await Session.open(config, home=folder, session_id=session_id) as session:
        events = await collect(session.ask(question, attachments=shown))
        return session.id, events


def answers(events: Sequence[Event]) -> dict[str, str]:
    return {event.agent_id: event.content for event in events if isinstance(event, AnswerSubmitted)}


def start(events: Sequence[Event]) -> TurnStarted:
    return next(event for event in events if isinstance(event, TurnStarted))


async def test_all_agents_see_a_picture_also_in_later_turns(folder: Path):
    name, events = await ask(team(), folder, "What is it?", PLAN)
    assert answers(events) == {"ann": SEEN, "bob": SEEN}
    assert start(events).attachments == (PLAN.file,)
    assert start(events).question == "What is it?\n\n[attached: plan.png]"
    _, later = await ask(team(), folder, "And what colour has it?", session_id=name)
    assert answers(later) == {"ann": SEEN, "bob": SEEN}
    _, other = await ask(team(), folder, "And here?")
    assert answers(other) == {"ann": "none", "bob": "none"}


async def test_agent_that_does_not_see_is_refused_before_anything_is_stored(folder: Path):
    with pytest.raises(InputError, match=r"not every agent .* sees pictures: bob \(scripted\) cannot") as caught:
        await ask(team("bob"), folder, "What is it?", PLAN)
    assert "--describe" in caught.value.hint
    with pytest.raises(InputError, match="no agent of the team sees pictures: ann"):
        await ask(team("ann", "bob", files={"describe": True}), folder, "What is it?", PLAN)
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    assert await store.list_sessions() == []
    await store.close()


async def test_a_program_that_takes_no_pictures_is_one_that_does_not_see(folder: Path):
    config = team(files={"describe": True})
    program = config.agents[1].model_copy(update={"backend": backend("plain")})
    config = config.model_copy(update={"agents": (config.agents[0], program)})
    _, events = await ask(config, folder, "What is it?", PLAN)
    assert "as ann describes it" in start(events).description
    silent = config.model_copy(update={"files": config.files.model_copy(update={"describe": False})})
    with pytest.raises(InputError, match="bob"):
        await ask(silent, folder, "What is it?", PLAN)


async def test_agent_that_sees_describes_for_one_that_does_not(folder: Path):
    config = team("bob", agents=("bob", "ann"), files={"describe": True})
    name, events = await ask(config, folder, "What is it?", PLAN)
    assert answers(events) == {"ann": SEEN, "bob": "none"}
    started = start(events)
    assert started.description == f"What is attached, as ann describes it:\nI see: {SEEN}."
    assert started.question == f"What is it?\n\n[attached: plan.png]\n\n{started.description}"
    assert any(isinstance(e, Notice) and "ann described what is attached" in e.message for e in events)
    end = events[-1]
    assert isinstance(end, TurnCompleted)
    parts = sum((e.usage.prompt for e in events if hasattr(e, "usage") and e is not end), start=0)
    assert started.usage.prompt > 1_000
    assert end.usage.prompt >= parts, "the description is part of what the turn cost"
    _, later = await ask(config, folder, "And now?", session_id=name)
    assert answers(later) == {"ann": SEEN, "bob": "none"}


async def test_description_that_fails_costs_no_question(folder: Path):
    config = team("bob", files={"describe": True})
    backend = {"type": "scripted", "max_retries": 0, "script": {"describe": [{"error": "auth"}, {"text": "A plan."}]}}
    agents = [{"id": "ann", "backend": backend}, {"id": "bob", "backend": {"type": "scripted", "vision": False}}]
    config = TeamConfig.model_validate({**config.model_dump(include={"files", "memory"}), "agents": agents})
    async with await Session.open(config, home=folder) as session:
        with pytest.raises(ProviderError):
            await collect(session.ask("What is it?", attachments=[PLAN]))
        events = await collect(session.ask("What is it?", attachments=[PLAN]))
    assert start(events).turn == 1
    assert start(events).description.endswith("A plan.")


async def test_interrupted_turn_is_resumed_with_its_picture(folder: Path):
    config = team("bob", files={"describe": True})
    async with await Session.open(config, home=folder) as session:
        async for event in session.ask("What is it?", attachments=[PLAN]):
            if isinstance(event, TurnStarted):
                session.stop("user")
        name = session.id
    async with await Session.open(config, home=folder, session_id=name) as session:
        events = await collect(session.finish_turn())
    assert answers(events) == {"ann": SEEN, "bob": "none"}


async def test_same_question_with_another_picture_is_another_question(folder: Path):
    other = make_attachment("plan.png", "image/png", PNG + b"changed")
    async with await Session.open(team(), home=folder) as session:
        for shown in (PLAN, PLAN, other):
            async for event in session.ask("What is it?", attachments=[shown]):
                if isinstance(event, TurnStarted):
                    session.stop("user")
        name = session.id
    async with await Session.open(team(), home=folder, session_id=name) as session:
        events = await collect(session.finish_turn())
        assert other.file.hash[:8] in answers(events)["ann"]
        assert await session.load_question(2) == ("What is it?\n\n[attached: plan.png]", (other,))


async def test_picture_counts_in_the_context(folder: Path):
    _, events = await ask(team(agents=("ann",)), folder, "What is it?", PLAN)
    measured = next(event for event in events if isinstance(event, ContextMeasured))
    assert measured.tokens > PLAN.tokens


async def test_earlier_pictures_are_sent_up_to_the_limit(folder: Path):
    large = [make_attachment(f"{i}.png", "image/png", PNG + bytes([i]) * 600) for i in range(3)]
    config = team(agents=("ann",), files={"max_size": 1_400})
    async with await Session.open(config, home=folder) as session:
        for picture in large:
            await collect(session.ask("What is it?", attachments=[picture]))
        events = await collect(session.ask("And before?"))
    assert [name in answers(events)["ann"] for name in ("0.png", "1.png", "2.png")] == [False, True, True]


async def test_undone_picture_is_seen_no_more(folder: Path):
    async with await Session.open(team(agents=("ann",)), home=folder) as session:
        await collect(session.ask("What is it?", attachments=[PLAN]))
        await session.undo()
        assert answers(await collect(session.ask("And now?"))) == {"ann": "none"}
