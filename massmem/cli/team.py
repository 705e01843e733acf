"""Which team answers: the configuration that a command line stands for."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import dotenv

from massmem.config.load import default_config, find_config, load_config
from massmem.config.models import NO_STORE, StoreConfig, TeamConfig
from massmem.errors import InputError
from massmem.home import massmem_home
from massmem.render.printable import printable

if TYPE_CHECKING:
    from massmem.session.team import Team


@dataclass(frozen=True, slots=True)
class Prepared:
    """A configuration and where massmem keeps its files. team: it is open already; its store and memory are used."""

    config: TeamConfig
    home: Path
    team: "Team | None" = None


def one_file(file: str | None, config: str | None) -> str | None:
    """The configuration that a command was given, as its argument or as --config. Raises InputError for two."""
    if file is not None and config is not None and file != config:
        raise InputError(f"two configurations were given: {file} and {config}", "leave one of them out")
    return config if file is None else file


def prepared(config: str | None) -> Prepared:
    """Read .env and the configuration as for a question. Raises ConfigError, InputError, HomeError."""
    home = massmem_home()
    read_dotenv(Path(".env"))
    return Prepared(load_team(config, home), home)


def load_team(
    name: str | None, home: Path, limits: Mapping[str, float] | None = None, *, stored: bool = True
) -> TeamConfig:
    """The configuration file `name`, or the default of this machine. Its warnings are written to stderr.

    limits: replace those of `coordination`, by name. stored False: nothing is written, and nothing gone on with.

    Raises:
        ConfigError, InputError
    """
    if name is None:
        config, warnings = default_config(os.environ, home)
    else:
        config, warnings = load_config(find_config(name), os.environ)
    for warning in warnings:
        sys.stderr.write(f"massmem: {printable(warning)}\n")
    if limits:
        coordination = config.coordination.model_copy(update=dict(limits))
        config = config.model_copy(update={"coordination": coordination})
    if stored:
        return config
    return config.model_copy(update={"store": StoreConfig(url=NO_STORE), "session_id": None})


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
