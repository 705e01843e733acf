"""The calibrations of teams, one file each in ~/.massmem/eval/calibrations, and which team each one is of."""

import hashlib
import inspect
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from massmem.config.home import lock_file, replace_file
from massmem.config.models import AgentSpec, ModelConfig, TeamConfig
from massmem.core import prompts
from massmem.core.errors import InputError
from massmem.core.verdict import Calibration

_MOST_BYTES = 5_000_000
"""Of one file."""

_OTHER_THAN_ANSWERS = {
    "depth", "max_error", "escalate_below", "weights", "max_concurrency", "timeout", "waiting_timeout", "max_cost",
    "max_tokens",
}  # fmt: skip
"""Keys of `coordination` that choose among answers or end a turn. A key that is new counts until it is named here."""

_WAYS_TO_A_MODEL = {"api_key", "timeout", "deadline", "max_retries", "price"}
"""Keys of a backend on which its answers do not depend."""


def compute_fingerprint(config: TeamConfig) -> str:
    """Return a key of the team, the same as long as it would answer in the same way.

    It has the agents with their models and fallbacks, sampling, system messages and the names of their tools, the
    coordination without depth, bounds and limits, the params, and the text of massmem's prompts. Names for people,
    keys, prices, memory and the store do not count.
    """
    identity = [
        [_describe_agent(agent, has_folders=bool(config.files.folders)) for agent in config.agents],
        config.coordination.model_dump(mode="json", exclude=_OTHER_THAN_ANSWERS),
        {name: param.model_dump(mode="json") for name, param in config.params.items()},
        inspect.getsource(prompts),
        *(["measured"] if config.coordination.weights == "measured" else []),  # another answer may win
    ]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _describe_agent(agent: AgentSpec, *, has_folders: bool) -> dict[str, Any]:
    return {
        "id": agent.id,
        "model": _describe_model(agent.backend),
        "fallback": [_describe_model(model) for model in agent.backend.fallback],
        "system_message": agent.system_message,
        "tools": sorted([server.name, server.allow, server.deny] for server in agent.mcp_servers),
        "folders": has_folders or bool(agent.folders),
    }


def _describe_model(model: ModelConfig) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude={*_WAYS_TO_A_MODEL, "fallback"})


def calibrations_folder(home: Path) -> Path:
    """Return the folder of all calibrations, each a file named by its fingerprint; it may not exist yet."""
    return home / "eval" / "calibrations"


def find_calibration(home: Path, config: TeamConfig) -> Path:
    """Return the file in which the calibration of this team is, if there is one."""
    return calibrations_folder(home) / f"{compute_fingerprint(config)}.json"


def read_calibration(path: Path) -> Calibration:
    """Return the calibration in a file.

    Raises InputError: it cannot be read, or holds something else. A turn goes on without it, and says so.
    """
    hint = "write it anew: massmem eval DATA --calibrate; or delete the file"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is no calibration: it is too large", hint)
        calibration = Calibration.model_validate_json(path.read_bytes())
    except FileNotFoundError as e:
        hint = "write one: massmem eval DATA --config FILE --calibrate"
        raise InputError("there is no calibration of this team, as it is configured", hint) from e
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror or e}", hint) from e
    except ValidationError as e:
        raise InputError(f"{path} is no calibration", hint) from e
    if calibration.fingerprint != path.stem:
        raise InputError(f"{path} is the calibration of another team", hint)
    return calibration


def store_calibration(home: Path, calibration: Calibration) -> Path:
    """Write the calibration in the place of an earlier one of the same team, and return its file.

    Raises MassmemError: it cannot be written.
    """
    path = calibrations_folder(home) / f"{calibration.fingerprint}.json"
    with lock_file(path):
        replace_file(path, calibration.model_dump_json())
    return path
