"""The embedded model drives a real tool server from end to end, when its weights are on this machine."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.errors import MissingModelError
from massmem.core.events import ToolCalled, ToolReturned, TurnCompleted
from massmem.providers.weights import require_weights
from tests.support.sessions import ask
from tests.support.tools import server
from tests.support.turns import check_order, only

pytestmark = [pytest.mark.slow, pytest.mark.model]

TIME = {"name": "time", "command": sys.executable, "args": ["-m", "mcp_server_time"]}


def team(tools: dict[str, Any]) -> TeamConfig:
    backend = {"type": "local", "temperature": 0, "timeout": 600}
    agent = {"id": "ann", "backend": backend, "mcp_servers": [tools]}
    return TeamConfig.model_validate(
        {
            "agents": [agent],
            "memory": {"persistent_memory": {"enabled": False}},
            "coordination": {"timeout": 1_200, "max_tool_rounds": 3},
        }
    )


@pytest.fixture(autouse=True)
def weights() -> None:
    try:
        require_weights("")
    except MissingModelError as e:
        pytest.skip(f"{e.message}; {e.hint}")


async def test_it_looks_at_the_clock(home: Path):
    _, events = await ask(team(TIME), home, "What time is it in Tokyo right now?")
    check_order(events)
    called, returned = only(events, ToolCalled)[0], only(events, ToolReturned)[0]
    assert called.name == "mcp__time__get_current_time"
    assert json.loads(called.arguments) == {"timezone": "Asia/Tokyo"}
    assert not returned.failed
    minute = json.loads(returned.content)["datetime"][13:16]  # the model may say 3:33 PM for 03:33
    assert minute in only(events, TurnCompleted)[0].answer


async def test_file_that_the_agent_reads_is_in_its_answer(tmp_path: Path, home: Path):
    tools = server(tmp_path / "calls", allow=["echo"])
    _, events = await ask(team(tools), home, "Use the tool to say this text again: pump P-17 in hall H-412")
    called = only(events, ToolCalled)
    assert called
    assert "H-412" in only(events, ToolReturned)[0].content
    assert "H-412" in only(events, TurnCompleted)[0].answer
