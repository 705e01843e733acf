"""PersistentMemory: the port to searchable memories of sessions, and the values that go in and come out.

Memories have ids of nineteen digits, and short ones of eight letters and digits to type. An id times an odd number of
65 bits is another number of 65 bits, which tells the id again, and whose first digits differ even for neighbours.
Written with 32 digits it has 13 of them, of which any unique beginning names the memory.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from massmem.core.errors import MemoryUnavailable
from massmem.core.messages import Usage

if TYPE_CHECKING:
    from massmem.core.events import MemoryAction
    from massmem.memory.origins import ToolWords

Kind = Literal["episode", "fact"]

USER = "user"
"""The agent id under which the user's own messages are stored; every agent may see them."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The value that one attribute of one subject has, as a memory says. See massmem.memory.claims."""

    subject: str
    """"user", or a name."""
    attribute: str
    value: str
    by: str
    """Who says so: USER, or an agent."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One message to store verbatim."""

    session_id: str
    message_id: str
    position: int
    """Place among the recorded messages of the session, from 0 without gaps: it tells which messages are neighbours."""
    turn: int
    agent_id: str
    """The author; USER for the user."""
    text: str
    created_at: datetime
    won: bool = False
    """The turn is complete and this agent won it. `complete_turns` sets it later when the turn is still open."""
    group: str = ""
    """The configured session_name, under which other sessions find it; "" for none."""
    project: str = ""
    """As in SessionRecord: agents in other projects do not find it; "": all find it."""
    origin: str = ""
    """Who said it, see massmem.memory.origins; "": its author."""
    rests_on: str = ""
    """Whose words it has, when they are a tool's: `tool:NAME`, which an index finds out from `tool_words`; or `web`."""
    call: str = ""
    """The call of which it is the result, in one line: `read_file src/app.py`."""
    lost: bool = False
    """Another agent won the complete turn in which an agent said it."""
    tool_words: "ToolWords | None" = field(default=None, compare=False)
    """Results that tools had given back when an agent wrote it; None: none."""
    changes: "tuple[MemoryChange, ...]" = field(default=(), compare=False)
    """What the user has changed of it before it is stored, oldest first: nobody is to find it as it was, meanwhile."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One extracted statement to store."""

    session_id: str
    turn: int
    agent_id: str
    text: str
    message_ids: tuple[str, ...]
    """The messages that it was extracted from."""
    created_at: datetime
    won: bool = False
    """As in Episode."""
    group: str = ""
    """As in Episode."""
    project: str = ""
    """As in Episode."""
    claim: Claim | None = None
    """None when it says nothing that can change."""
    origin: str = ""
    """As in Episode; USER when all its messages are the user's, which `tool_words` must bear out."""
    rests_on: str = ""
    """As in Episode."""
    tool_words: "ToolWords | None" = field(default=None, compare=False)
    """As in Episode."""
    used: bool = False
    """An agent was shown it."""
    turns: tuple[int, ...] = ()
    """All turns in which it was stated, where those are several."""


@dataclass(frozen=True, slots=True)
class MemoryChange:
    id: str
    """Of the message that says so; ids rise within a session."""
    action: "MemoryAction"
    session_id: str
    kind: Kind
    agent_id: str
    turn: int
    message_ids: tuple[str, ...]
    """The messages that the memory came from."""
    old: str
    """Its text before."""
    text: str
    """Its text from now on."""
    by: str
    """USER, or a user of the HTTP service."""
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Memory:
    """A stored passage of a message, or a stored fact."""

    id: str
    """Id of the point in the index, as decimal digits."""
    kind: Kind
    session_id: str
    turn: int
    agent_id: str
    text: str
    message_ids: tuple[str, ...]
    created_at: datetime
    score: float = 0.0
    """Its rank among what one recall found; of another question's it says nothing."""
    relevance: float = 0.0
    """Evidence that it matters for the question, whatever else is stored: the cosine of its meaning, without vectors
    the share of the question's words that it has."""
    group: str = ""
    project: str = ""
    """As in Episode; "" also when the user made it global."""
    claims: tuple[Claim, ...] = ()
    note: str = ""
    """That another answer was chosen; of a search also: since when or until when it holds, on which outdated value it
    rests, and who says otherwise."""
    origin: str = ""
    """Who said it, see massmem.memory.origins."""
    rests_on: str = ""
    """As in Episode."""
    call: str = ""
    """As in Episode."""
    callers: tuple[str, ...] = ()
    """Other agents that got the same result of the same call in the same turn."""
    edited_at: datetime | None = None
    """When the user gave it its text; None: it has the words that it was recorded with."""
    is_pinned: bool = False
    """Agents are always shown it."""
    is_global: bool = False
    """The user made it global: it is shown in every project."""
    changes: tuple[str, ...] = ()
    """Ids of the messages that say what the user changed of it, oldest first."""
    turns: tuple[int, ...] = ()
    """As in Fact."""

    @property
    def short_id(self) -> str:
        """For people."""
        return shorten_id(self.id)

    @property
    def is_queued(self) -> bool:
        """Whether the index does not have it like this yet."""
        return self.note.startswith(QUEUED)

    def to_dict(self) -> dict[str, Any]:
        """Return its one public form, for JSON."""
        return {name: getattr(self, name) for name in _PUBLIC} | {
            "created_at": self.created_at.isoformat(),
            "edited_at": self.edited_at and self.edited_at.isoformat(),
            "score": round(self.score, 4),
            "relevance": round(min(max(self.relevance, 0.0), 1.0), 4),
            "pinned": self.is_pinned,
            "origin": self.origin or None,
            "rests_on": self.rests_on or None,
        }


_PUBLIC = """
    id short_id kind session_id turn agent_id text message_ids project is_global note call callers
""".split()  # noqa: SIM905 - a list literal of this length reads badly


QUEUED = "queued"
"""Begins the note of a memory of which a change by the user waits in the queue."""
SHORT_ID_LENGTH = 8
"""Digits that are shown: among 50,000 memories the chance that any two share them is one in a thousand."""
_SHORTEST = 4
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_BITS = 65
_FACTOR = 22_801_429_638_646_396_971
"""Odd, and the golden ratio's part of 2**65: numbers in a row are spread evenly."""
_SHORT = re.compile(rf"[{_DIGITS}]{{{_SHORTEST},13}}")


def shorten_id(memory_id: str) -> str:
    """Return the short form; the id of a message, which stands for one without an index, has none and stays."""
    return _write(memory_id)[:SHORT_ID_LENGTH] if memory_id.isdecimal() else memory_id


def is_short_id(text: str) -> bool:
    """Return whether the text may be a short form: with more digits it is an id, or the id of a message."""
    return _SHORT.fullmatch(text.lower()) is not None


def find_ids(short: str, ids: Iterable[int]) -> list[str]:
    """Return those of the ids whose long form begins so, as texts."""
    short = short.lower()
    width = 5 * len(short)
    beginning = int(short.translate(str.maketrans(_DIGITS, "0123456789abcdefghijklmnopqrstuv")), 32)
    return [str(i) for i in ids if _mix(i) >> (_BITS - width) == beginning]


def _mix(number: int) -> int:
    return number * _FACTOR & ((1 << _BITS) - 1)


def _write(memory_id: str) -> str:
    number = _mix(int(memory_id))
    return "".join(_DIGITS[number >> shift & 31] for shift in range(_BITS - 5, -1, -5))


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects the memories that match every field that is set."""

    session_id: str | None = None
    agent_id: str | None = None
    turn: int | None = None
    kind: Kind | None = None
    ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    """Memories of any of these sessions."""
    origin: str | None = None
    """As in Memory; `tool` and `tool:NAME` also mean what rests on a tool's words."""
    message_ids: tuple[str, ...] = ()
    """Memories that came from any of these messages."""
    is_pinned: bool = False
    """Pinned ones only."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Who recalls, and when; `massmem.memory.access` derives from it what they may see."""

    session_id: str
    agent_id: str
    turn: int
    """The turn that is running in the session."""
    all_sessions: bool = False
    """Search the other sessions too."""
    group: str | None = None
    """Search also the sessions of this group (the configured session_name)."""
    others: tuple[str, ...] = ()
    """Search also the sessions with these ids."""
    project: str = ""
    """Search what belongs to this project, too; "": only what belongs to none. Its own session, and `others`, are
    searched whatever they belong to."""
    origins: tuple[tuple[str, int], ...] = ()
    """As in SessionRecord: what these sessions share with this one counts as said in it."""
    hidden: frozenset[tuple[str, int]] = frozenset()
    """Turns, by session and number, that are not part of their conversations: withdrawn, or undone."""
    without: frozenset[str] = frozenset()
    """Ids of memories, or of messages, to go without, as if they had never been stored."""
    as_of: datetime | None = None
    """Nothing that was said later exists yet, in any session."""
    origin: str | None = None
    """As in Selection."""
    names: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
    """How labels call agents, by id; others go by their ids."""


PINNED_TOKENS = 200
"""Of all pinned memories together, and never more than half of what may be recalled."""


@dataclass(frozen=True, slots=True)
class RecallOptions:
    max_tokens: int
    """Size of the recalled text."""
    limit: int | None = None
    """Most messages and facts; None for no limit."""
    exclude: frozenset[str] = frozenset()
    """Ids of messages to leave out, because the prompt shows them verbatim; or of memories."""
    verbatim: tuple[str, ...] = ()
    """Texts that the prompt shows, whatever their ids: what says the same is left out."""
    pinned: tuple[Memory, ...] = ()
    """Memories that the prompt shows beside what is recalled, so that copies of them are left out, too."""
    plain: bool = False
    """For a small model: a plain sentence for each memory, without dates and labels."""
    abstain: bool = True
    """Show nothing without evidence that it matters for the question; False: show the best there is."""
    is_search: bool = False
    """The query stands in no prompt: what says the same is shown, too."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether anything that was found matters for the question."""

    score: float = 0.0
    """Relevance of the best memory."""
    threshold: float = 0.0
    """The least that is shown."""
    reason: str = ""
    """In plain words, "silent: ..." or "shown: ..."; "" when nothing was found."""

    @classmethod
    def of(cls, score: float, threshold: float, why: str = "") -> "Decision":
        """Return the decision by relevance. why: they are shown whatever it is; "" for no such reason."""
        verb = "shown" if why or score >= threshold else "silent"
        why = why or f"the best match has {score:.2f}, and what matters has at least {threshold:.2f} here"
        return cls(round(score, 4), round(threshold, 4), f"{verb}: {why}")

    @property
    def is_silent(self) -> bool:
        return self.reason.startswith("silent")


@dataclass(frozen=True, slots=True)
class RecallResult:
    """Memories that a model is shown, and those that were found and left out."""

    text: str = ""
    """One line per memory, in time order."""
    memories: tuple[Memory, ...] = ()
    """The memories in the text, best first."""
    tokens: int = 0
    lexical_only: bool = False
    """No vectors were searched, only words."""
    pinned: tuple[Memory, ...] = ()
    """The pinned memories at the beginning of the text; they are not among `memories`."""
    pins_left_out: int = 0
    """Pinned memories for which there was no room."""
    silenced: tuple[Memory, ...] = ()
    """The best of what would have been shown without `RecallOptions.abstain`, best first."""
    decision: Decision = Decision()
    usage: Usage = field(default_factory=Usage)
    """Of embedding the question, by a provider."""


@dataclass(frozen=True, slots=True)
class MemoryStats:
    episodes: int
    passages: int
    facts: int
    sessions: int
    embedder: str
    location: str
    facts_used: int = 0
    """Facts that an agent was shown."""
    facts_contradicted: int = 0
    """Facts with a value that no longer holds, or that others dispute."""


class CompletedTurn(NamedTuple):
    session_id: str
    turn: int
    winner: str


def explain_missing_library(error: ImportError | MemoryError) -> MemoryUnavailable:
    """Return what to raise when a library cannot be loaded, such as where a limit of memory has no room for numpy."""
    reason = error.__cause__ or error
    return MemoryUnavailable(
        f"a library that memory needs cannot be loaded: {reason or 'there is not enough memory'}",
        "check it with: massmem doctor",
    )


class PersistentMemory(Protocol):
    """Searchable memories. Ids are derived from the content, so that storing the same thing twice stores it once.

    Raises (all methods): MemoryUnavailable when the index cannot be used now; nothing was written then.
    """

    def take_usage(self) -> Usage:
        """Return what its embedder was paid for what was written since the last call."""
        ...

    async def list_sessions(self) -> frozenset[str]:
        """Return the ids of the sessions that it has anything of."""
        ...

    @property
    def temporary(self) -> bool:
        """Whether everything stored here is deleted when this process ends."""
        ...

    async def record(self, episodes: Sequence[Episode]) -> None:
        """Store messages verbatim, cut into passages. They are searchable when this returns."""
        ...

    async def add_facts(self, facts: Sequence[Fact]) -> int:
        """Store facts; return how many of them are new.

        A fact that its agent has stored before keeps its id and gains the new source messages. When the agent won the
        turn in which the fact came up again, the others see the fact after that turn.
        """
        ...

    async def change(self, memory_id: str, change: MemoryChange) -> None:
        """Carry out what the user changed of a memory; nothing happens when that was done, or when it is gone.

        Its id stays. A search finds the new text, and no longer the old one.
        """
        ...

    async def complete_turns(self, turns: Sequence[CompletedTurn]) -> None:
        """Make visible to the other agents what each winner said in its turn."""
        ...

    async def sync(self) -> None:
        """Bring to the disk what was stored before this call: it then survives a loss of power.

        What was stored survives a kill of the process without this.
        """
        ...

    async def recall(self, query: str, scope: Scope, options: RecallOptions) -> RecallResult:
        """Return what bears on the query among what the scope may see, packed into the budget."""
        ...

    async def list(self, selection: Selection, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        """Return stored memories, newest first."""
        ...

    async def forget(self, selection: Selection) -> int:
        """Delete for good; return how many passages and facts were deleted.

        Raises InputError: the selection is empty.
        """
        ...

    async def stats(self) -> MemoryStats: ...

    async def close(self) -> None: ...
