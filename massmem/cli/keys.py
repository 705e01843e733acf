"""`massmem keys`: API keys in a file that only the user can read, which is read beside the environment."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import dotenv
import typer

from massmem.cli.streams import notify, open_output, write_json, write_out
from massmem.config.home import lock_file, make_home, massmem_home
from massmem.config.presets import PRESETS, PROVIDERS_BY_KEY
from massmem.core.errors import InputError
from massmem.core.redact import show_start

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{2,63}")
_KEY = re.compile(r"[\x21-\x26\x28-\x5b\x5d-\x7e]{8,512}")
"""Printable characters without blanks, single quotes and backslashes, which the file would change."""

app = typer.Typer(
    no_args_is_help=True,
    help="Store your keys for model providers (OpenAI, Anthropic, ...), with which massmem calls them. "
    "Keys with which users call `massmem serve`: massmem key.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A provider, such as openai, or a variable.")]


@app.command("set")
def set_command(name: Name) -> None:
    """Store an API key, readable by you alone.

    It is asked for, or read from standard input. Every command uses it, unless the environment or .env has another one.
    """
    variable = to_variable(name)
    key: str = (
        typer.prompt(f"The key for {variable} (not shown)", hide_input=True, err=True)
        if sys.stdin.isatty()
        else sys.stdin.readline()
    )
    path = store_key(massmem_home(), variable, key)
    notify(f"{variable} is stored in {path}")


@app.command("list")
def list_command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the stored keys by their first characters."""
    home = massmem_home()
    keys = read_keys(home)
    if as_json:
        write_json({"file": str(_keys_file(home)), "keys": {name: show_start(key) for name, key in keys.items()}})
        return
    for name, key in keys.items():
        other = os.environ.get(name, key)
        write_out(f"{name}  {show_start(key)}{'' if other == key else '  (the environment has another one)'}\n")
    if not keys:
        notify("no key is stored; store one with: massmem keys set openai")


@app.command("remove")
def remove_command(name: Name) -> None:
    """Delete a stored key."""
    variable, home = to_variable(name), massmem_home()
    with lock_file(_keys_file(home)):
        keys = read_keys(home)
        if variable not in keys:
            raise InputError(f"{variable} is not stored", "see the stored keys with: massmem keys list")
        del keys[variable]
        _write_keys(home, keys)
    notify(f"{variable} is deleted")


def read_keys(home: Path) -> dict[str, str]:
    """Return the stored keys by their variables. Raises InputError when the file cannot be read."""
    path = _keys_file(home)
    try:
        return {name: key for name, key in dotenv.dotenv_values(path, interpolate=False).items() if key}
    except (OSError, ValueError) as e:
        raise InputError(f"{path} cannot be read: {e}", "correct it, or move it away") from e


def store_key(home: Path, variable: str, key: str) -> Path:
    """Store a key; return the file. Raises InputError when it is no key."""
    key = key.strip()
    if not _KEY.fullmatch(key):
        raise InputError("this is not an API key", "copy the whole key, without blanks, quotes and backslashes")
    make_home(home)
    with lock_file(_keys_file(home)):
        _write_keys(home, read_keys(home) | {variable: key})
    return _keys_file(home)


def guess_variable(key: str) -> str | None:
    """Return the variable of the provider whose keys start like this one; None when that is not known."""
    presets = [preset for preset in PRESETS.values() if preset.key_start and key.startswith(preset.key_start)]
    return presets[0].key_variables[0] if presets else None


def _write_keys(home: Path, keys: Mapping[str, str]) -> None:
    with open_output(_keys_file(home)) as write:
        for name, key in keys.items():
            write(f"{name}='{key}'\n")


def _keys_file(home: Path) -> Path:
    return home / "keys.env"


def to_variable(name: str) -> str:
    """Return the variable of a provider, or the name of a variable itself. Raises InputError."""
    if variables := next((preset.key_variables for type_, preset in PRESETS.items() if type_ == name.lower()), ()):
        return variables[0]
    if _VARIABLE.fullmatch(name):
        return name
    providers = ", ".join(dict.fromkeys(provider for _, provider, _ in PROVIDERS_BY_KEY))
    raise InputError(f"{name[:60]!r} is neither a provider nor a variable", f"providers: {providers}")
