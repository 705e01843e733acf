"""Sessions in formats that others read. Each piece is text by itself, so that a session of any length can be streamed.

Whatever looks like a secret is taken out here, once for all formats. What is stored stays as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

from massmem.export import as_html, as_json, as_markdown, as_text
from massmem.records import SessionRecord
from massmem.redact import redact, redact_values
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


def without_secrets(said: Exchange) -> Exchange:
    """The turn with `[redacted]` for every part that looks like a secret."""
    messages = [
        m.model_copy(update={"content": redact(m.content), "metadata": redact_values(m.metadata)})
        for m in said.messages
    ]
    record = said.record
    question = next((m.content for m in messages if m.kind == "user"), redact(record.question))
    answer = next((m.content for m in messages if m.final), None)
    return exchange(record.model_copy(update={"question": question, "answer": answer}), messages)


def session_without_secrets(session: SessionRecord) -> SessionRecord:
    texts = ("title", "last_message", "description", "config_path", "model")
    return session.model_copy(update={name: redact(getattr(session, name)) for name in texts})
