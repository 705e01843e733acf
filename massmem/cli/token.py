"""`massmem token`: tokens for users of the HTTP service."""

import os
from collections.abc import Mapping
from typing import Annotated

import typer
from pydantic import SecretStr

from massmem.cli.options import Config, parse_duration
from massmem.cli.setup import load_setup
from massmem.cli.streams import write_out
from massmem.config.models import TeamConfig
from massmem.core.errors import InputError

SECRET = "MASSMEM_JWT_SECRET"
"""The environment variable with the secret, when the configuration has none."""

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
    """Print a token, signed with server.jwt.secret. Whoever has it acts as that user."""
    jwt = add_secret(load_setup(config).config, os.environ).server.jwt
    try:
        from massmem.server.auth import Tokens
    except ModuleNotFoundError as e:
        raise InputError(f"massmem token needs the package {e.name}", "pip install 'massmem[server]'") from e
    seconds = round(parse_duration(ttl).total_seconds())
    if seconds == 0:
        raise InputError("a token must be valid for a second at least", "write --ttl as 90s, 15m, 1h or 7d")
    write_out(Tokens(jwt).create(sub, seconds, scope) + "\n")


def add_secret(config: TeamConfig, environ: Mapping[str, str]) -> TeamConfig:
    """Return the configuration with the secret of the environment when it has none of its own."""
    jwt, secret = config.server.jwt, environ.get(SECRET)
    if jwt.secret is not None or jwt.keys or not secret:
        return config
    server = config.server.model_copy(update={"jwt": jwt.model_copy(update={"secret": SecretStr(secret)})})
    return config.model_copy(update={"server": server})
