"""Sessions in formats that others read. Each piece is text by itself, so that a session of any length can be streamed.

Whatever looks like a secret is taken out here, once for all formats. What is stored stays as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from massmem.export import as_html, as_json, as_markdown, as_text
from massmem.records import MessageRecord, SessionRecord
from massmem.redact import masked, masked_values, redact, redact_values
from massmem.transcript import Exchange, exchange


@dataclass(frozen=True, slots=True)
class Format:
    """head, the turns in order, tail: joined they are the file."""

    suffix: str
    head: Callable[[SessionRecord], str]
    turn: Callable[[Exchange, bool, bool], str]
    """(turn, whether it is the first, whether all that the agents did is wanted)."""
    tail: Callable[[], str]


FORMATS: dict[str, Format] = {
    "json": Format("json", as_json.head, as_json.turn, as_json.tail),
    "markdown": Format("md", as_markdown.head, as_markdown.turn, as_markdown.tail),
    "text": Format("txt", as_text.head, as_text.turn, as_text.tail),
    "html": Format("html", as_html.head, as_html.turn, as_html.tail),
}


def without_secrets(said: Exchange, values: Mapping[str, object] | None = None) -> Exchange:
    """The turn with `[redacted]` for every part that looks like a secret, and the name of a param for its value.

    values: of the session's params, by name. What the user replied when asked is left out whole.
    """
    known = values or {}
    messages = [
        m.model_copy(update={"content": _plain(m, known), "metadata": redact_values(masked_values(m.metadata, known))})
        for m in said.messages
    ]
    record = said.record
    question = next((m.content for m in messages if m.kind == "user"), redact(masked(record.question, known)))
    clean = exchange(record.model_copy(update={"question": question, "answer": None}), messages)
    answer = clean.final.content if clean.final is not None else None
    return replace(clean, record=clean.record.model_copy(update={"answer": answer}), plan=said.plan)


def _plain(message: MessageRecord, values: Mapping[str, object]) -> str:
    name = message.metadata.get("param")
    return f"[{name}]" if isinstance(name, str) else redact(masked(message.content, values))


def session_without_secrets(session: SessionRecord, values: Mapping[str, object] | None = None) -> SessionRecord:
    texts = ("title", "last_message", "description", "config_path", "model")
    return session.model_copy(update={name: redact(masked(getattr(session, name), values or {})) for name in texts})
