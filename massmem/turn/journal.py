"""The journal of an agent's work in a turn: what it called, how that ended and what was found. A view of the log.

Code keeps it, so that finished work outlives every compression of the prompt; what the work means is the model's to
summarise. A prompt holds the entries of those calls alone whose results do not stand in it word for word.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import split as split_path
from typing import cast

from massmem.core.calls import parse_json, shorten_tool_name, split_arguments
from massmem.core.events import Event, ToolCalled, ToolReturned
from massmem.core.messages import ToolSpec
from massmem.core.text import one_line
from massmem.memory.compression import Count, cut_line, is_said_in, list_stems, rate_line, select_lines, weigh
from massmem.memory.tokens import estimate_tokens
from massmem.memory.words import split_sentences
from massmem.tools.actions import parse_object

READ_EARLIER = ToolSpec(
    "read_earlier",
    "Shows the result of an earlier call again, as it was, one part at a time, without calling that tool again.",
    {
        "type": "object",
        "properties": {
            "message": {"type": "integer", "description": "The number of the call, as your notes have it."},
            "part": {"type": "integer", "description": "1 is the beginning of the result.", "default": 1},
        },
        "required": ["message"],
    },
)

CUT_OFF = "massmem was stopped while this call ran: it is not known whether the tool has done its work"
"""The result of a call that a kill cut off."""

_DETAILS = ((3, True, 200), (2, True, 200), (1, True, 200), (1, False, 120), (1, False, 80))
"""Lines of findings, whether sizes are shown, and characters of a line: the first that fits the room is used."""

_MAX_LINE, _MAX_READ = 200, 200_000
"""Characters of one line of what was found; of a result whose words are compared with the agent's notes."""

_FOCUS_SHARE = 1 / 5
"""Part of the room for older findings that bear on what the agent does next."""

_MIN_FOLDER = 12
"""Characters of a folder's name that is written once for all of its files."""

_MIN_NAMES, _NAMES_SHARE, _MAX_NAME_LINE = 4, 0.8, 120
"""A result may be a list of names when it has so many lines, such a part of them has a name, and so many characters."""

_WORD = re.compile(r"[^\s\"'`,;:|()\[\]{}<>]{3,}")
_LETTER, _SIGN = re.compile(r"[^\W\d_]"), re.compile(r"\d|\w[./_-]+\w")
"""A word with a letter, and with a digit or a sign within it, is a name: of a file, a key."""

_MIN_NAME, _SENTENCE_OF_ITS_OWN = 3, 6
"""Characters of a name that a sentence may mean; words of a sentence that says something of what it names."""


@dataclass
class JournalEntry:
    """One call, its result, and what the agent wrote of it."""

    number: int
    """Of the call in the agent's turn, from 1."""
    called: ToolCalled
    returned: ToolReturned | None = None
    notes: list[str] = field(default_factory=list[str])
    _findings: tuple[tuple[str, int], list[str]] | None = None
    """A question and a number of notes, and what was found for them."""

    @property
    def argument(self) -> str:
        """The main argument of the call."""
        return split_arguments(self.called.arguments)[0]

    @property
    def result(self) -> str:
        return "" if self.returned is None else self.returned.content

    @property
    def problem(self) -> str:
        """Why there is no result; "": there is one."""
        if self.returned is None or self.returned.content == CUT_OFF:
            return "outcome unknown: it was cut off while it ran"
        return f"failed: {one_line(self.returned.content, _MAX_LINE)}" if self.returned.failed else ""

    @cached_property
    def stems(self) -> frozenset[str]:
        """Of the words of the result that the call itself does not have."""
        return list_stems(self.result[:_MAX_READ]) - list_stems(self.called.arguments)

    def find(self, question: str) -> list[str]:
        """Return what was found, best first: the agent's own sentences, and lines with words of the question."""
        key = question, len(self.notes)
        if self._findings is None or self._findings[0] != key:
            stems = list_stems(question)
            own = sorted(self.notes, key=lambda note: -rate_line(note, stems))[:2]
            lines = select_lines(self.result, stems, 2)
            findings = [*own, *(line for line in lines if not any(is_said_in(line, note) for note in own))]
            findings.sort(key=lambda line: -rate_line(line, stems) - (line in own))
            self._findings = key, [one_line(line, _MAX_LINE) for line in findings]
        return self._findings[1]


class Journal:
    """The calls of one agent in one turn, in order. `feed` takes the turn's events as the log has them."""

    def __init__(self, agent_id: str = "", events: Iterable[Event] = ()) -> None:
        self.entries: list[JournalEntry] = []
        self._agent_id = agent_id
        self._by_id: dict[str, JournalEntry] = {}
        self._focus = ""
        """The agent's last call, and the text before it."""
        self._last_reply = (0, 0)
        self._last_entries: list[JournalEntry] = []
        """Round and batch of the last reply with calls, and the entries whose results it brought."""
        for event in events:
            self.feed(event)

    def feed(self, event: Event) -> None:
        """Take in an event; those of other agents, and those that are no work with tools, are ignored."""
        match event:
            case ToolCalled(agent_id=agent) if agent == self._agent_id:
                self._focus = "\n".join(filter(None, (event.text, event.arguments)))
                if (event.round, event.batch) != self._last_reply:
                    self._take_notes("\n".join(filter(None, (event.text, event.reasoning))))
                    self._last_reply, self._last_entries = (event.round, event.batch), []
                if (entry := self._find_entry(event)) is not None:
                    self._last_entries.append(entry)
            case ToolReturned(agent_id=agent, call_id=call_id) if agent == self._agent_id and call_id in self._by_id:
                self._by_id[call_id].returned = event
            case _:
                pass

    def get_number(self, call_id: str) -> int:
        """Return the number of a call; 0 for one that is not in the journal."""
        entry = self._by_id.get(call_id)
        return 0 if entry is None else entry.number

    def read(self, number: int, part: int, max_tokens: int) -> str:
        """Return one part of the result of a call, with a heading. max_tokens: of a part, about.

        Raises ValueError: there is no such result or part; the message says so to the model.
        """
        if not 1 <= number <= len(self.entries):
            raise ValueError(f"there is no call {number}; they are numbered from 1 to {len(self.entries)}")
        entry = self.entries[number - 1]
        size = count_part_characters(entry.result, max_tokens)
        parts = max(1, -(-len(entry.result) // size))
        if not 1 <= part <= parts:
            raise ValueError(f"the result of call {number} has the parts 1 to {parts}")
        name = " ".join(filter(None, (shorten_tool_name(entry.called.name), entry.argument)))
        text = entry.result[(part - 1) * size : part * size] or entry.problem
        return f"[{number} {name}, part {part} of {parts}]\n{text}"

    def find_last_batch(self, round_: int, verbatim: Collection[str]) -> int:
        """Return the number of a step's last reply with a call that is not in `verbatim`; 0: there is none."""
        calls = (entry.called for entry in self.entries if entry.called.call_id not in verbatim)
        return max((called.batch for called in calls if called.round == round_), default=0)

    def count_repeats(self, call_id: str) -> int:
        """Return how many times in a row the same call has had the same result, up to this one."""
        entries = self.entries[: self.get_number(call_id)]
        keys = [(e.called.name, e.called.arguments, e.result) for e in reversed(entries)]
        return next((i for i, key in enumerate(keys) if key != keys[0]), len(keys))

    def has_other_calls(self, verbatim: Collection[str]) -> bool:
        """Return whether there are calls beside these. verbatim: ids of calls."""
        return any(entry.called.call_id not in verbatim for entry in self.entries)

    def write(self, verbatim: Collection[str], question: str, max_tokens: int, count: Count) -> str:
        """Return the entries of all calls but those in `verbatim`, a line each, in at most about `max_tokens` tokens.

        Where there is no room for everything, the oldest lose what was found first, unless it bears on what the agent
        does now, and their names last.
        """
        entries = [entry for entry in self.entries if entry.called.call_id not in verbatim]
        if not entries:
            return ""
        text, page, stems = "", _Page(entries), list_stems(question)
        for lines, sizes, limit in _DETAILS:
            findings = {e.number: [cut_line(line, stems, limit) for line in e.find(question)[:lines]] for e in entries}
            text = page.write(findings, sizes=sizes)
            if count(text) <= max_tokens:
                return text
        return self._fold(page, question, max_tokens, count)

    def list_open_lists(self, verbatim: Collection[str], max_tokens: int, count: Count) -> frozenset[str]:
        """Return ids of those calls whose results list names of which later calls have some and not all.

        While they stand in the prompt word for word, the agent knows what is left to do. The newest count, in
        `max_tokens` together.
        """
        chosen: set[str] = set()
        later: list[str] = []
        seen: set[tuple[str, str]] = set()
        for entry in reversed(self.entries):
            call = (entry.called.name, entry.called.arguments)
            if entry.called.call_id in verbatim and call not in seen and not entry.problem:
                lines = list_names(entry.result)
                used = [any(name in text for name in names for text in later) for names in lines]
                if any(used) and not all(used) and (size := count(entry.result)) <= max_tokens:
                    chosen.add(entry.called.call_id)
                    max_tokens -= size
            seen.add(call)
            later.append(entry.called.arguments)
        return frozenset(chosen)

    def _find_entry(self, called: ToolCalled) -> JournalEntry | None:
        """Return the entry of a call: a new one, or that whose result is read again."""
        if called.name != READ_EARLIER.name:
            entry = self._by_id[called.call_id] = JournalEntry(len(self.entries) + 1, called)
            self.entries.append(entry)
            return entry
        number = (parse_object(called.arguments) or {}).get("message")
        return self.entries[number - 1] if isinstance(number, int) and 1 <= number <= len(self.entries) else None

    def _take_notes(self, text: str) -> None:
        """Give each sentence beside a call to the earlier call that it is about."""
        for sentence in split_sentences(text) if self.entries else ():
            if entry := self._find_subject(sentence):
                entry.notes.append(sentence)

    def _find_subject(self, sentence: str) -> JournalEntry | None:
        """Return the entry that a sentence names, else the one of the last reply with whose result it shares most.

        None: it tells nothing of any.
        """
        stems = list_stems(sentence)
        for entry in reversed(self.entries):
            name = split_path(entry.argument)[1]
            if len(name) >= _MIN_NAME and name in sentence:
                tells = len(sentence.split()) >= _SENTENCE_OF_ITS_OWN or weigh(stems & entry.stems) > 0
                return entry if tells else None
        best = max(self._last_entries, key=lambda entry: weigh(stems & entry.stems), default=None)
        return best if best is not None and weigh(stems & best.stems) > 1 else None

    def _fold(self, page: "_Page", question: str, max_tokens: int, count: Count) -> str:
        """Return the page with as much of what was found as there is room for."""
        left = max_tokens - count(page.write({}, sizes=False))
        if left < 0:
            return _fold_names(page, max_tokens, count)
        stems, limit = list_stems(question), _DETAILS[-1][2]
        lines_of = {
            entry.number: [cut_line(line, stems, limit) for line in entry.find(question)[:1]] for entry in page.entries
        }
        newest_first = [(entry, lines) for entry in reversed(page.entries) if (lines := lines_of[entry.number])]
        focus = list_stems(self._focus) - stems
        bearing = {entry.number: weigh(focus & list_stems(lines[0])) for entry, lines in newest_first}
        older = (item for item in newest_first if bearing[item[0].number])
        bearing_first = sorted(older, key=lambda item: -bearing[item[0].number])
        findings: dict[int, list[str]] = {}
        for queue, limit in ((bearing_first, left - int(_FOCUS_SHARE * left)), (newest_first, 0)):
            for entry, lines in queue:
                if entry.number in findings:
                    continue
                left -= (cost := count(page.write_line(entry, lines, sizes=False)) + 1)
                if left < limit:
                    left += cost
                    break
                findings[entry.number] = lines
        return page.write(findings, sizes=False)


@dataclass(frozen=True)
class _Page:
    entries: Sequence[JournalEntry]

    @cached_property
    def folder(self) -> str:
        """The folder of most of the calls' arguments, which is written once; "": none."""
        folders = Counter(split_path(entry.argument)[0] for entry in self.entries)
        folder, times = folders.most_common(1)[0]
        return folder if times > 2 and len(folder) > _MIN_FOLDER else ""

    def write(self, findings: dict[int, list[str]], *, sizes: bool) -> str:
        """findings: lines by the number of the call; calls without any share a line with others of their folder."""
        lines: dict[str, str] = {}
        for entry in self.entries:
            if findings.get(entry.number) or entry.problem:
                lines[str(entry.number)] = self.write_line(entry, findings.get(entry.number, []), sizes=sizes)
                continue
            folder, name = split_path(self._shorten(entry.argument))
            key = f"{shorten_tool_name(entry.called.name)} {folder}".rstrip()
            lines[key] = f"{lines[key]}, {entry.number} {name}" if key in lines else f"{key}: {entry.number} {name}"
        heading = [f"… stands for {self.folder}"] if self.folder else []
        return "\n".join([*heading, *lines.values()])

    def write_line(self, entry: JournalEntry, lines: Sequence[str], *, sizes: bool) -> str:
        others = split_arguments(entry.called.arguments)[1]
        argument = " ".join(filter(None, (self._shorten(entry.argument), others and f"({others})")))
        call = " ".join(filter(None, (str(entry.number), shorten_tool_name(entry.called.name), argument)))
        if entry.problem:
            return f"{call} {entry.problem}"
        size = f", {format_size(entry.result)}" if sizes else ""
        return f"{call}{size}: {' / '.join(lines)}"

    def _shorten(self, argument: str) -> str:
        return f"…{argument[len(self.folder) :]}" if self.folder and argument.startswith(self.folder) else argument


def _fold_names(page: _Page, max_tokens: int, count: Count) -> str:
    """Return the newest entries by name alone, and how many earlier ones there are."""
    entries, text = page.entries, ""
    while entries:
        left_out = len(page.entries) - len(entries)
        heading = f"{left_out} earlier calls, numbered from {page.entries[0].number}\n" if left_out else ""
        text = heading + _Page(entries).write({}, sizes=False)
        if count(text) <= max_tokens:
            break
        entries = entries[max(1, len(entries) // 8) :]
    return text


def count_part_characters(text: str, max_tokens: int) -> int:
    """Return how many characters a part of a result has. max_tokens: of a part, about; no vocabulary is needed."""
    return max(200, len(text) * max_tokens // max(1, estimate_tokens(text)))


def format_size(text: str) -> str:
    """Return `4.2 KB`."""
    size = len(text.encode("utf-8", "surrogatepass"))
    return f"{size} B" if size < 1_000 else f"{size / 1_000:,.1f} KB"


def list_names(result: str) -> list[list[str]]:
    """Return the names in each line, or item of a JSON list, of a result; [] when it is no list of names."""
    lines = _read_json_items(result) or [line for line in result.splitlines() if line.strip()]
    words = (_WORD.findall(line) for line in lines if len(line) <= _MAX_NAME_LINE)
    names = [
        in_line for line in words if (in_line := [word for word in line if _LETTER.search(word) and _SIGN.search(word)])
    ]
    return names if len(names) >= max(_MIN_NAMES, _NAMES_SHARE * len(lines)) else []


def _read_json_items(result: str) -> list[str]:
    """Return the first text of each item of the list that a result is, or has as its only value."""
    data: object = parse_json(result)
    if isinstance(data, dict):
        data = next(iter(cast("dict[str, object]", data).values()), None)
    items = cast("list[object]", data) if isinstance(data, list) else []
    texts = [
        next(iter(cast("dict[str, object]", item).values()), "") if isinstance(item, dict) else item for item in items
    ]
    return [text for text in texts if isinstance(text, str)]
