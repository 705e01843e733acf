"""What a session learns of the windows of its models."""

from pathlib import Path

from massmem.config.load import resolve_agents
from massmem.config.models import TeamConfig
from massmem.core.errors import ContextOverflow
from massmem.providers.learnt import LearntModels
from massmem.session.team import Windows

BACKEND = {"type": "vllm", "model": "m", "base_url": "http://127.0.0.1:9/v1"}


async def test_window_learnt_from_a_refusal_is_there_in_the_next_process(tmp_path: Path) -> None:
    agents = resolve_agents(TeamConfig.model_validate({"agents": [{"id": "ann", "backend": BACKEND}]}), {})
    first = Windows(agents, LearntModels(tmp_path))
    meter = (await first.create_meters())["ann"]
    assert meter.assumed
    meter.learn(20_000, ContextOverflow("prompt is too long", prompt_tokens=20_000, window=8_192))
    await first.close()
    second = Windows(agents, LearntModels(tmp_path))
    learnt = (await second.create_meters())["ann"]
    await second.close()
    assert (learnt.window, learnt.assumed) == (8_192, False)
