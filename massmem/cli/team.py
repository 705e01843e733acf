"""Which team answers: the configuration that a command line stands for."""

import os
import sys
from pathlib import Path

import dotenv

from massmem.config.load import default_config, find_config, load_config
from massmem.config.models import TeamConfig
from massmem.errors import InputError
from massmem.render.printable import printable


def load_team(name: str | None, home: Path, timeout: float | None = None) -> TeamConfig:
    """The configuration file `name`, or the default of this machine. Its warnings are written to stderr.

    timeout: replaces coordination.timeout, in seconds.

    Raises:
        ConfigError, InputError
    """
    if name is None:
        config, warnings = default_config(os.environ, home)
    else:
        config, warnings = load_config(find_config(name), os.environ)
    for warning in warnings:
        sys.stderr.write(f"massmem: {printable(warning)}\n")
    if timeout is None:
        return config
    coordination = config.coordination.model_copy(update={"timeout": timeout})
    return config.model_copy(update={"coordination": coordination})


def read_dotenv(path: Path) -> None:
    """Add the variables of a .env file to the environment; what is already set stays. No file: nothing happens.

    Raises:
        InputError: the file cannot be read or is not UTF-8 text.
    """
    if not path.is_file():
        return
    try:
        dotenv.load_dotenv(path, override=False)
    except (OSError, ValueError) as e:
        raise InputError(f"{path} cannot be read: {e}", "correct it, or move it away") from e
