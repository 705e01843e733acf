"""How memories are shown to a model: labelled quotations that cannot pose as anything else. Pure."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime

from massmem.core.text import defuse, one_line, shorten
from massmem.memory.origins import mark_source
from massmem.memory.persistent import USER, Kind, Memory
from massmem.memory.words import is_question, split_sentences

LONGEST_FACT = 500
"""Characters of a fact that are shown: one sentence or two; more is a mistake of the extraction, or an attack."""

NOT_CHOSEN = "not chosen"
"""The note of what an agent said in a turn that another one won: only itself is ever shown it."""

FROM_OUTSIDE = "from outside"
"""The note of what another program wrote."""

STANDING_WISH = "standing wish"
"""The note of what the user asks for in every answer: agents are always shown it, until it is unpinned or forgotten."""

NO_NAMES: Mapping[str, str] = {}

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


_TOOL_LINE = re.compile(
    r"(?:\d\d:\d\d )?(?:\[From [^\]]{0,200}? Turn \d{1,9}, (?:tool|quoting(?: the)?) ?([\w.-]*+)[^\]]*+\]"
    r"|(?:You|Earlier [^:]{0,200}?) \((?:tool|quoting(?: the)?) ?([\w.-]*+)[^)]*+\):) (.*)"
)

_LONGEST_PLAIN = 160
"""Characters of a memory in plain words: a small model repeats what is longer instead of answering."""


WISHES = "Wishes of the user for every answer, also for this one:"
PINS = "Pinned by the user:"
CHANGED = re.compile(r"(?<!which )held until|holds since")
"""In the notes of what no longer holds, and of what took the place of that."""
HOLDS = "What changed, what holds now below what it replaced:"
PASSAGES = "What was said, the newest last:"


@dataclass(frozen=True, slots=True)
class Quote:
    """A memory as it is shown."""

    memory: Memory
    follows: bool = False
    """It stands in its message right behind the memory that is shown before it."""
    block: str = PASSAGES
    """The heading below which it stands."""


def quote_text(text: str, kind: Kind = "episode") -> str:
    """Return stored text as it may be shown: one line, without invisible characters or look-alikes of our frames.

    A date line or a label stands at the start of a line only, and no stored text can begin one: line breaks are gone.
    """
    line = defuse(text if _is_one_line(text) else to_one_line(text))
    return shorten(line, LONGEST_FACT) if kind == "fact" else line


def _is_one_line(text: str) -> bool:
    return text.isprintable() and text.isascii() and "  " not in text and text == text.strip()


def to_one_line(text: str) -> str:
    """Return the text on one line, without control characters and what cannot be seen."""
    return " ".join((text if text.isprintable() else "".join(map(_to_visible, text))).split())


def _to_visible(character: str) -> str:
    """Line breaks and other control characters become spaces; what cannot be seen (zero width, bidi) goes."""
    match unicodedata.category(character):
        case "Cc" | "Zl" | "Zp":
            return " "
        case "Cf" | "Co" | "Cs":
            return ""
        case _:
            return character


def format_label(agent_id: str, turn: int, reader: str, note: str = "", source: str = "") -> str:
    """Return who said it, as `reader` reads it: its own words, the user's, or those of another agent.

    note: of Memory; source: see mark_source. They stand in the label because no stored text can begin one.
    """
    note = "; ".join(filter(None, (source, note)))
    if agent_id not in (reader, USER):
        return f"[From {agent_id} Turn {turn}{note and f', {note}'}]"
    return f"{'You' if agent_id == reader else 'User'}{note and f' ({note})'}:"


def format_plain_label(agent_id: str, turn: int, reader: str, note: str = "", source: str = "") -> str:
    """Return who said it as the user tells a small model, which takes a frame with rules for its task."""
    note = "; ".join(filter(None, (source, note)))
    who = {USER: "I", reader: "you"}.get(agent_id, agent_id.replace(":", ""))
    return f"Earlier {who} said{note and f' ({note})'}:"


def _quote_plainly(text: str) -> str:
    """Return a quoted text in short, without its questions: a small model would answer them."""
    statements = " ".join(sentence for sentence in split_sentences(text) if not is_question(sentence))
    short = one_line(statements or text, _LONGEST_PLAIN).replace('"', "'")
    return f'"{short}"'


def find_author(memory: Memory, reader: str, names: Mapping[str, str] = NO_NAMES) -> str:
    """Return under whose name a memory is shown: the reader's own when it got the same result of a tool.

    names: how agents are called, by id.
    """
    if reader in memory.callers:
        return reader
    name = memory.agent_id if memory.agent_id in (reader, USER) else names.get(memory.agent_id, memory.agent_id)
    return name.replace("[", "(").replace("]", ")")  # nothing in a label can end it


def write_date(day: date) -> str:
    day = day.astimezone() if isinstance(day, datetime) else day
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def list_tool_lines(text: str) -> list[tuple[str, str]]:
    """Return the lines of a rendered text that are labelled as a tool's, each behind the tool's name."""
    matches = map(_TOOL_LINE.match, text.splitlines())
    return [(match[1] or match[2] or "", match[3]) for match in matches if match]


def _describe(memory: Memory) -> str:
    """Return the note of a memory, and that its words are not those of then."""
    edited = memory.edited_at and f"edited {write_date(memory.edited_at.date())}"
    return "; ".join(filter(None, (memory.note, edited)))


def render(
    quotes: Iterable[Quote], reader: str, names: Mapping[str, str] = NO_NAMES, *, plain: bool = False, here: str = ""
) -> str:
    """Return a date line per session and day, a line per message, " … " where something of a message is left out.

    quotes: in the order in which they are shown, those of a message together. names: see find_author. plain: without
    headings and date lines, each line a short sentence of the user who asks. here: the running session; with it date
    lines name the conversation, and lines the minute.
    """
    lines: list[tuple[str, str]] = []
    block, place, message = PASSAGES, None, None
    conversations = {here: ", this conversation"}
    for quote in quotes:
        memory, moment = quote.memory, quote.memory.created_at.astimezone()
        if quote.block != block and not plain:
            lines.append((quote.block, ""))
            block, place = quote.block, None
        if (memory.session_id, moment.date()) != place and not plain:
            place, message = (memory.session_id, moment.date()), None
            name = conversations.setdefault(memory.session_id, f", conversation {len(conversations)}")
            lines.append((f"[{write_date(moment)}{name if here else ''}]", ""))
        source = (memory.kind, memory.agent_id, *memory.message_ids) if memory.kind == "episode" else (memory.id,)
        mark = mark_source(memory.rests_on, memory.call)
        note = _describe(memory)
        this = (*source, note, mark)
        text = quote_text(memory.text, memory.kind)
        if this == message:
            label, before = lines[-1]
            lines[-1] = label, f"{before}{' ' if quote.follows else ' … '}{text}"
        else:
            author = find_author(memory, reader, names)
            form = format_plain_label if plain else format_label
            time = f"{moment:%H:%M} " if here and not plain else ""
            lines.append((time + form(author, memory.turn, reader, note, mark), text))
        message = this
    if plain:
        lines = [(label, _quote_plainly(text)) for label, text in lines]
    return "\n".join(f"{label} {text}".rstrip() for label, text in lines)
