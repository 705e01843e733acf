"""`massmem import`: conversations of other programs become sessions."""

import asyncio
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from massmem.cli.options import AsJson, Config
from massmem.cli.setup import Setup, load_setup
from massmem.cli.streams import Progress, notify, show_progress, write_json
from massmem.config.home import expand_home
from massmem.render.text import pluralize
from massmem.session.imports import (
    ImportedConversation,
    ImportResult,
    ImportTarget,
    import_conversation,
    read_conversations,
)
from massmem.session.lease import ProcessLock
from massmem.session.owners import memory_group
from massmem.session.registry import register_sessions

app = typer.Typer()


@app.command("import")
def import_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="conversations.json, another export, or a folder of MassGen.")
    ],
    facts: Annotated[
        bool, typer.Option("--facts", help="Let the team's extractor read every turn, which costs a request each.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make sessions of the conversations that another program exports.

    ChatGPT and Claude (conversations.json), massmem (sessions export --format json), lists of messages in JSON or JSON
    lines, and MassGen (.massgen/sessions, or a session in it). They are recalled like your own. Run it again with a
    newer export: only what is new is added.
    """
    conversations = read_conversations(expand_home(file))
    setup = load_setup(config)
    with show_progress("conversations") as progress:
        results = asyncio.run(_import(setup, conversations, progress, facts=facts))
    if as_json:
        write_json([asdict(result) for result in results])
    new = sum(result.added for result in results)
    notify(f"{pluralize(len(results), 'conversation')} read, {pluralize(new, 'turn')} added")
    for result in results:
        if result.conflict:
            notify(f"{result.session_id} ({result.title}) has gone on in another way here, and was left as it is")
        if result.busy:
            notify(f"{result.session_id} ({result.title}) is in use: import the file again when its turn has ended")


async def _import(
    setup: Setup, conversations: list[ImportedConversation], progress: Progress, *, facts: bool
) -> list[ImportResult]:
    results: list[ImportResult] = []
    async with setup.open_store() as store:
        with closing(ProcessLock(setup.home)) as process:
            target = ImportTarget(store, process, group=memory_group(setup.config, None), facts=facts)
            for conversation in conversations:
                results.append(await import_conversation(target, conversation))
                progress(len(results), len(conversations))
        # Once for all: the whole file is written. Also those without news: the last run may have been killed here.
        sessions = [await store.get_session(result.session_id) for result in results]
        await register_sessions(setup.home, store, setup.config.store.url, list(filter(None, sessions)))
    return results
