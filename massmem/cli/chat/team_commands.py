"""/agents and /model: who answers, and with which models."""

from collections.abc import Sequence
from typing import get_args

from massmem.cli.chat.command import Command
from massmem.cli.chat.desk import Desk
from massmem.cli.showing import tell
from massmem.cli.streams import write_out
from massmem.config.models import AgentConfig, BackendConfig, BackendType
from massmem.errors import InputError
from massmem.render.printable import one_line

_ABOUT = 60


async def _agents(desk: Desk, _rest: str) -> None:
    meters = await desk.team.windows.meters()
    width = max(len(agent.id) for agent in desk.team.agents)
    for agent in desk.team.agents:
        meter = meters[agent.id]
        window = f"reads {'about ' if meter.assumed else ''}{meter.window:,} tokens"
        about = one_line(agent.system_message, _ABOUT)
        write_out(f"{agent.id:<{width}}  {_model(agent)}, {window}{f'  {about}' if about else ''}\n")


async def _use_model(desk: Desk, rest: str) -> None:
    agent_id, _, model = rest.partition(" ")
    if not agent_id:
        await _agents(desk, "")
        return
    agent = desk.agent(agent_id)
    if not model.strip():
        write_out(f"{agent.id}: {_model(agent)}\n")
        return
    await desk.use(agent.id, backend(agent.backend, model.strip()))
    tell(f"{agent.id} works with {_model(desk.agent(agent.id))} until you quit")


def backend(now: BackendConfig, wanted: str) -> BackendConfig:
    """The backend with another model, and of another type when `wanted` is TYPE/MODEL."""
    kind, _, model = wanted.partition("/")
    if kind not in get_args(BackendType):
        return now.model_copy(update={"model": wanted, "price": None})
    if kind == now.type:
        return now.model_copy(update={"model": model, "price": None})
    if kind == "scripted":
        raise InputError("a scripted model cannot be chosen here", "name it in the configuration, with its script")
    kept = {name: getattr(now, name) for name in ("temperature", "max_tokens", "timeout", "max_retries")}
    return BackendConfig.model_validate({"type": kind, "model": model, **kept})


async def _complete_model(desk: Desk, words: Sequence[str]) -> Sequence[str]:
    if not words:
        return [agent.id for agent in desk.team.agents]
    known = dict.fromkeys(f"{a.backend.type}/{a.backend.model}" for a in desk.team.agents if a.backend.model)
    return [*known, *(f"{kind}/" for kind in get_args(BackendType) if kind != "scripted")] if len(words) == 1 else ()


def _model(agent: AgentConfig) -> str:
    return one_line(f"{agent.backend.type} {agent.backend.model}".rstrip())


COMMANDS = (
    Command("agents", "Who answers, with which model.", _agents),
    Command(
        "model", "Show or change the model of an agent, until you quit.", _use_model, "[AGENT [[TYPE/]MODEL]]",
        _complete_model,
    ),
)  # fmt: skip
