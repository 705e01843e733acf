"""`massmem token`: tokens for users of the HTTP service."""

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from massmem.cli.options import Config, parse_duration
from massmem.cli.setup import load_setup, require_extra
from massmem.cli.streams import write_out
from massmem.config.home import explain_write_error, make_home, write_once
from massmem.config.models import JwtConfig, TeamConfig
from massmem.core.errors import HomeError, InputError

SECRET = "MASSMEM_JWT_SECRET"
"""The environment variable with the secret, when the configuration has none."""

SECRET_FILE = "jwt-secret"
"""In massmem's folder: the secret when there is none in the configuration and none in the environment."""

app = typer.Typer(no_args_is_help=True, help="Create tokens for users of the HTTP service.")


@app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction]  - without it Typer would drop the word `create`
    """Tokens for users of the HTTP service."""


@app.command("create")
def create_command(
    sub: Annotated[str, typer.Option(metavar="USER", help="The user of the token: a name or an id.")],
    ttl: Annotated[str, typer.Option(metavar="TIME", help="How long it is valid: 90s, 15m, 1h, 7d.")] = "1h",
    scope: Annotated[str, typer.Option(metavar="SCOPES", help="Scopes: admin (figures of all users), metrics.")] = "",
    config: Config = None,
) -> None:
    """Print a token, signed with the secret of `massmem serve`. Whoever has it acts as that user."""
    setup = load_setup(config)
    team, notice = ensure_secret(setup.config, os.environ, setup.home)
    if notice:
        sys.stderr.write(f"{notice}\n")
    with require_extra("server", "token"):
        from massmem.server.auth import Tokens
    seconds = round(parse_duration(ttl).total_seconds())
    if seconds == 0:
        raise InputError("a token must be valid for a second at least", "write --ttl as 90s, 15m, 1h or 7d")
    write_out(Tokens(team.server.jwt).create(sub, seconds, scope) + "\n")


def add_secret(config: TeamConfig, environ: Mapping[str, str], home: Path) -> TeamConfig:
    """Return the configuration with a secret: its own, that of the environment, or that of massmem's folder, if any.

    Raises:
        HomeError: the file of the secret cannot be read.
    """
    jwt = config.server.jwt
    if not needs_secret(jwt):
        return config
    secret = environ.get(SECRET) or _read_secret(home / SECRET_FILE)
    if not secret:
        return config
    server = config.server.model_copy(update={"jwt": jwt.model_copy(update={"secret": SecretStr(secret)})})
    return config.model_copy(update={"server": server})


def ensure_secret(config: TeamConfig, environ: Mapping[str, str], home: Path) -> tuple[TeamConfig, str]:
    """As `add_secret`, but make a secret when there is none. Return also what to tell the user then, else "".

    Raises:
        HomeError, StoreError: the secret cannot be read or written.
    """
    team = add_secret(config, environ, home)
    if not needs_secret(team.server.jwt):
        return team, ""
    path = home / SECRET_FILE
    make_home(home)
    try:
        write_once(path, secrets.token_hex(32))
    except OSError as e:
        raise explain_write_error(path, e) from e
    text = f"a secret for tokens was made and is kept in {path}; several machines need the same one: set {SECRET}"
    return add_secret(config, environ, home), text


def needs_secret(jwt: JwtConfig) -> bool:
    """Whether tokens are signed with a secret, and there is none."""
    return jwt.algorithm == "HS256" and jwt.secret is None and not jwt.keys


def _read_secret(path: Path) -> str:
    try:
        secret = path.read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as e:
        raise HomeError(f"{path} cannot be read: {e}", f"check its permissions, or set {SECRET}") from e
    if not secret:
        raise HomeError(f"{path} is empty", f"delete it, and a new secret is made; or set {SECRET} to the old one")
    return secret
