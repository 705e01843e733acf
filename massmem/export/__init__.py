"""Writes a session as a file, a turn at a time, in one of several formats, with secrets removed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from massmem.core.records import MessageRecord, SessionRecord
from massmem.core.redact import mask, mask_values, redact, redact_values
from massmem.core.transcript import TurnTranscript, build_transcript
from massmem.export import as_html, as_json, as_markdown, as_text


@dataclass(frozen=True, slots=True)
class Format:
    """The file is the start, then each turn in order, then the end."""

    suffix: str
    write_start: Callable[[SessionRecord], str]
    write_turn: Callable[[TurnTranscript, bool, bool], str]
    """(turn, whether it is the first, whether to include every step of the agents)"""
    end: str = ""


FORMATS: dict[str, Format] = {
    "json": Format("json", as_json.write_start, as_json.write_turn, as_json.END),
    "markdown": Format("md", as_markdown.write_start, as_markdown.write_turn),
    "text": Format("txt", as_text.write_start, as_text.write_turn),
    "html": Format("html", as_html.write_start, as_html.write_turn, as_html.END),
}


def redact_turn(turn: TurnTranscript, params: Mapping[str, object] | None = None) -> TurnTranscript:
    """Return the turn with `[redacted]` for what looks like a secret and the name of a param for its value.

    Args:
        params: values of the session's params, by name. A reply to a request for a param is left out whole.
    """
    values = params or {}
    messages = [
        message.model_copy(
            update={
                "content": _redact_message(message, values),
                "metadata": redact_values(mask_values(message.metadata, values)),
            }
        )
        for message in turn.messages
    ]
    record = turn.record
    question = next((m.content for m in messages if m.kind == "user"), redact(mask(record.question, values)))
    clean = build_transcript(record.model_copy(update={"question": question, "answer": None}), messages)
    answer = clean.final.content if clean.final is not None else None
    return replace(clean, record=clean.record.model_copy(update={"answer": answer}), plan=turn.plan)


def redact_session(session: SessionRecord, params: Mapping[str, object] | None = None) -> SessionRecord:
    """Return the session with its texts redacted, as `redact_turn` does."""
    texts = ("title", "last_message", "description", "config_path", "model")
    return session.model_copy(update={name: redact(mask(getattr(session, name), params or {})) for name in texts})


def _redact_message(message: MessageRecord, params: Mapping[str, object]) -> str:
    return redact(mask(message.public_text, params))
