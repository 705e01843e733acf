"""Large results of tools, cut down before facts are looked for in them."""

import logging
from collections.abc import MutableMapping, Sequence

from massmem.config.models import RecordingConfig
from massmem.core.errors import MassmemError
from massmem.core.records import MessageRecord, RecordingJob
from massmem.core.redact import redact
from massmem.memory.extraction.extractor import Summarize
from massmem.recording.rules import belongs

log = logging.getLogger(__name__)

LARGE = 5_000
"""Bytes above which a result is summarised."""

_HEAD, _TAIL = 2_000, 1_000


async def shortened(
    turn: Sequence[MessageRecord],
    row: RecordingJob,
    settings: RecordingConfig,
    summarize: Summarize | None,
    known: MutableMapping[str, str],
) -> tuple[list[MessageRecord], str]:
    """The turn with summaries in place of the large results that the row is about, when the settings ask for them.

    What cannot be summarised keeps its beginning and end; why is the second part of the result, "" when all could.
    After one failure nothing more is asked for. known: summaries by message id, of an earlier attempt; new ones are
    added to it.
    """
    found: list[MessageRecord] = []
    reason = "" if summarize is not None else "no model is configured"
    problem = ""
    for message in turn:
        if not (settings.summarize_large_results and belongs(message, row, settings) and _is_large(message)):
            found.append(message)
            continue
        if not reason and message.id not in known and summarize is not None:
            try:
                known[message.id] = await summarize(message.content, settings.summary_model)
            except MassmemError as e:
                reason = " ".join(redact(e.message).split())
                log.warning("a large tool result was not summarised: %s", reason)
        problem = problem or (reason if message.id not in known else "")
        text = _summary(message.content, known[message.id]) if message.id in known else excerpt(message.content, reason)
        found.append(message.model_copy(update={"content": text}))
    return found, f"a tool result was cut and not summarised: {problem}" if problem else ""


def excerpt(text: str, reason: str) -> str:
    """The beginning and the end of a text, and why the rest is not there."""
    left_out = len(text) - _HEAD - _TAIL
    if left_out <= 0:
        return text
    return f"{text[:_HEAD]}\n[{left_out:,} characters left out, not summarised: {reason}]\n{text[-_TAIL:]}"


def _is_large(message: MessageRecord) -> bool:
    return message.kind == "tool_result" and len(message.content.encode("utf-8", "replace")) > LARGE


def _summary(text: str, summary: str) -> str:
    return f"[Summary of a result of {len(text):,} characters]\n{summary}"
