"""`massmem token`: tokens for users of the HTTP service."""

import os
import re
from collections.abc import Mapping
from typing import Annotated

import typer
from pydantic import SecretStr

from massmem.cli.streams import write_out
from massmem.cli.team import prepared
from massmem.config.models import TeamConfig
from massmem.errors import InputError

SECRET = "MASSMEM_JWT_SECRET"

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

app = typer.Typer(no_args_is_help=True, help="Make tokens for users of the HTTP service.")


@app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction]  - keeps `create` a word of its own
    """Tokens for users of the HTTP service."""


@app.command("create")
def create_command(
    sub: Annotated[str, typer.Option(metavar="USER", help="Whose token it is: a name or an id.")],
    ttl: Annotated[str, typer.Option(metavar="TIME", help="How long it counts: 90s, 15m, 1h, 7d.")] = "1h",
    scope: Annotated[str, typer.Option(help="Words: admin (figures of all users), metrics.")] = "",
    config: Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")] = None,
) -> None:
    """Print a token, signed with server.jwt.secret. Whoever has it is that user."""
    jwt = with_secret(prepared(config).config, os.environ).server.jwt
    try:
        from massmem.server.auth import Tokens
    except ModuleNotFoundError as e:
        raise InputError(f"massmem token needs the package {e.name}", "pip install 'massmem[server]'") from e
    write_out(Tokens(jwt).make(sub, _seconds(ttl), scope) + "\n")


def with_secret(config: TeamConfig, environ: Mapping[str, str]) -> TeamConfig:
    """The configuration with the secret of the environment, when it has none of its own."""
    jwt, found = config.server.jwt, environ.get(SECRET)
    if jwt.secret is not None or jwt.keys or not found:
        return config
    server = config.server.model_copy(update={"jwt": jwt.model_copy(update={"secret": SecretStr(found)})})
    return config.model_copy(update={"server": server})


def _seconds(text: str) -> int:
    match = re.fullmatch(r"([1-9]\d{0,8})([smhd])", text.strip())
    if match is None:
        raise InputError(f"{text[:40]!r} is no length of time", "write 90s, 15m, 1h or 7d")
    return int(match[1]) * _UNITS[match[2]]
