"""`massmem key` and `massmem token`: with which users and programs call the HTTP service.

Keys for providers: `massmem keys`.
"""

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from massmem.cli.options import AsJson, Config, format_time, parse_duration
from massmem.cli.setup import load_setup, require_extra
from massmem.cli.streams import notify, write_json, write_out
from massmem.config.home import explain_write_error, make_home, write_once
from massmem.config.models import JwtConfig, TeamConfig
from massmem.core.errors import HomeError, InputError
from massmem.core.events import now
from massmem.core.records import ApiKey, make_api_key
from massmem.core.text import one_line
from massmem.render.text import format_columns

key_app = typer.Typer(
    no_args_is_help=True,
    help="Create, list and revoke API keys with which users and programs call `massmem serve`. "
    "Your own keys for OpenAI, Anthropic, ...: massmem keys.",
)

_SHOWN_FIELDS = {"id", "sub", "name", "scope", "last_four", "created_at", "expires_at"}


@key_app.command("create")
async def create_command(
    sub: Annotated[str, typer.Option(metavar="USER", help="The user of the key: a name or an id.")],
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is valid: 12h, 30d, 52w. [default: until revoked]")
    ] = None,
    name: Annotated[str, typer.Option(metavar="TEXT", help="What it is for, as the list shows it.")] = "",
    scope: Annotated[str, typer.Option(metavar="SCOPES", help="Scopes: admin (figures of all users), metrics.")] = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print a new key. It is shown this once: only its hash is stored, in the store of the sessions.

    Whoever has it acts as that user, at every process of the service on this store.
    """
    moment = now()
    expires_at = None if ttl is None else moment + parse_duration(ttl)
    if expires_at == moment:
        raise InputError("a key must be valid for a second at least", "write --ttl as 12h, 30d or 52w")
    text, key = make_api_key(sub, moment, name=name, scope=scope, expires_at=expires_at)
    async with load_setup(config).open_store() as store:
        if not store.info.durable:
            raise InputError("the store is held in memory: the key would end with this command", "set store.url")
        await store.add_key(key)
    if as_json:
        write_json({"key": text, **key.model_dump(mode="json", include=_SHOWN_FIELDS)})
        return
    write_out(f"{text}\n")
    notify(f"this key is shown once; to revoke it: massmem key revoke {key.id}")


@key_app.command("list")
async def list_command(config: Config = None, as_json: AsJson = False) -> None:
    """List the keys of all users by their last four characters."""
    async with load_setup(config).open_store() as store:
        keys = await store.list_keys()
    if as_json:
        write_json([key.model_dump(mode="json", include=_SHOWN_FIELDS) for key in keys])
        return
    for line in format_columns([_format_cells(key) for key in keys]):
        write_out(f"{line}\n")
    if not keys:
        notify("there is no key; create one with: massmem key create --sub USER")


@key_app.command("revoke")
async def revoke_command(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `massmem key list` shows it.")], config: Config = None
) -> None:
    """Delete a key. It is refused from the next request on, by every process of the service."""
    async with load_setup(config).open_store() as store:
        if not await store.delete_key(key_id):
            raise InputError(f"there is no key {one_line(key_id, 60)!r}", "see the keys with: massmem key list")
    notify(f"{key_id} is revoked")


def _format_cells(key: ApiKey) -> tuple[str, ...]:
    if key.expires_at is None:
        end = "until revoked"
    else:
        end = f"{'expired' if key.expires_at <= now() else 'until'} {format_time(key.expires_at)}"
    name = " ".join(filter(None, (one_line(key.name), key.scope and f"[{one_line(key.scope)}]")))
    return key.id, one_line(key.sub, 60), f"...{key.last_four}", format_time(key.created_at), end, name


SECRET = "MASSMEM_JWT_SECRET"
"""The environment variable with the secret, when the configuration has none."""

SECRET_FILE = "jwt-secret"
"""In massmem's folder: the secret when there is none in the configuration and none in the environment."""

token_app = typer.Typer(no_args_is_help=True, help="Create tokens for users of the HTTP service.")


@token_app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction]  - without it Typer would drop the word `create`
    """Tokens for users of the HTTP service."""


@token_app.command("create")
def create_token_command(
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

    Raises HomeError: the file of the secret cannot be read.
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

    Raises HomeError, StoreError: the secret cannot be read or written.
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
