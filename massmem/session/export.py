"""Reads a whole session from the store as a file in one of the formats of massmem.export."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from massmem.core.attachments import Attachment
from massmem.core.records import SessionRecord
from massmem.export import Format, redact_session, redact_turn
from massmem.store.lookup import read_transcript
from massmem.store.ports import SessionStore


async def export_session(
    store: SessionStore, session: SessionRecord, form: Format, *, detailed: bool, shown: SessionRecord | None = None
) -> AsyncGenerator[tuple[str, int]]:
    """Yield the pieces of the file, each with the number of messages so far. Raise StoreError.

    detailed: with every step of the agents, where the format leaves that open. shown: what the file says of the session
    itself; None: what the store does.
    """
    params = (await store.load_state(session.session_id)).params
    yield form.write_start(redact_session(shown or session, params)), 0
    first, done = True, 0
    async with aclosing(read_transcript(store, session.session_id)) as turns:
        async for transcript in turns:
            stored = await store.load_files(session.session_id, [file.hash for file in transcript.files])
            files = tuple(Attachment(f, stored[f.hash]) for f in transcript.files if f.hash in stored)
            clean = replace(redact_turn(transcript, params), attachments=files)
            done += len(transcript.messages)
            yield form.write_turn(clean, first, detailed), done
            first = False
    yield form.end, done
