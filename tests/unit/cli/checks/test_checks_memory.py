"""The checks of the memory: what they say about its languages."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from massmem.cli.checks import DoctorContext
from massmem.cli.checks.memory import check_index
from massmem.config.models import TeamConfig
from massmem.memory import open_memory
from tests.support.memories import make_episode

TEAM = {"agents": [{"id": "a", "backend": {"type": "openai", "model": "m"}}]}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Ich wohne in Graz und nicht in Wien.", "我的姐姐在学校工作", "I live in Graz."], True),
        (["Ich wohne in Graz und nicht in Wien.", "I live in Graz.", "My sister is here."], False),
        ([], False),
    ],
)
async def test_most_messages_in_other_languages_call_for_another_embedder(
    home: Path, texts: Sequence[str], expected: bool
):
    team = TeamConfig.model_validate(TEAM)
    memory = await open_memory(team.memory, home, {})
    await memory.record([make_episode(text, i) for i, text in enumerate(texts)])
    await memory.close()
    (result,) = await check_index(DoctorContext(home, {}, team))
    assert result.status == "ok"
    assert any("massmem[multilingual]" in detail for detail in result.details) is expected
