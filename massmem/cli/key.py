"""`massmem key`: API keys with which users and programs call the HTTP service. Keys for providers: `massmem keys`."""

import asyncio
from typing import Annotated

import typer

from massmem.cli.options import AsJson, Config, format_time, parse_duration
from massmem.cli.setup import load_setup
from massmem.cli.streams import notify, write_json, write_out
from massmem.core.errors import InputError
from massmem.core.events import now
from massmem.core.records import ApiKey, make_api_key
from massmem.core.text import one_line

app = typer.Typer(
    no_args_is_help=True,
    help="Create, list and revoke API keys with which users and programs call `massmem serve`. "
    "Your own keys for OpenAI, Anthropic, ...: massmem keys.",
)

_SHOWN_FIELDS = {"id", "sub", "name", "scope", "last_four", "created_at", "expires_at"}


@app.command("create")
def create_command(
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
    asyncio.run(_store_key(config, key))
    if as_json:
        write_json({"key": text, **key.model_dump(mode="json", include=_SHOWN_FIELDS)})
        return
    write_out(f"{text}\n")
    notify(f"this key is shown once; to revoke it: massmem key revoke {key.id}")


@app.command("list")
def list_command(config: Config = None, as_json: AsJson = False) -> None:
    """List the keys of all users by their last four characters."""
    keys = asyncio.run(_list_keys(config))
    if as_json:
        write_json([key.model_dump(mode="json", include=_SHOWN_FIELDS) for key in keys])
        return
    rows = [_format_cells(key) for key in keys]
    widths = [max(len(row[i]) for row in rows) for i in range(5)] if rows else []
    for row in rows:
        write_out("  ".join([*map(str.ljust, row, widths), row[5]]).rstrip() + "\n")
    if not keys:
        notify("there is no key; create one with: massmem key create --sub USER")


@app.command("revoke")
def revoke_command(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `massmem key list` shows it.")], config: Config = None
) -> None:
    """Delete a key. It is refused from the next request on, by every process of the service."""
    asyncio.run(_revoke_key(config, key_id))
    notify(f"{key_id} is revoked")


async def _store_key(config: str | None, key: ApiKey) -> None:
    async with load_setup(config).open_store() as store:
        if not store.info.durable:
            raise InputError("the store is held in memory: the key would end with this command", "set store.url")
        await store.add_key(key)


async def _list_keys(config: str | None) -> list[ApiKey]:
    async with load_setup(config).open_store() as store:
        return await store.list_keys()


async def _revoke_key(config: str | None, key_id: str) -> None:
    async with load_setup(config).open_store() as store:
        if not await store.delete_key(key_id):
            raise InputError(f"there is no key {one_line(key_id, 60)!r}", "see the keys with: massmem key list")


def _format_cells(key: ApiKey) -> tuple[str, ...]:
    if key.expires_at is None:
        end = "until revoked"
    else:
        end = f"{'expired' if key.expires_at <= now() else 'until'} {format_time(key.expires_at)}"
    name = " ".join(filter(None, (one_line(key.name), key.scope and f"[{one_line(key.scope)}]")))
    return key.id, one_line(key.sub, 60), f"...{key.last_four}", format_time(key.created_at), end, name
