"""What recall shows of short notes, of chats that go on, and of a few statements that are asked for in other words.

notes.txt has the notes of six people, with questions: a fact; an update, of which the last note holds; a preference,
which matches loosely; near: on what a note is about, and it has no answer; none: nothing fits. chats.txt has chats with
questions that go on with what was said. Before each question stand the numbers of the notes or messages that answer it.
Constants were chosen on the first, third and fifth set of each file; the others are held out.
"""

import json
import re
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from statistics import mean

from scripts.benches.memory_adapter import Adapter
from scripts.benches.rows import Row, at_least, reported

_BUDGET = 1000
_MESSAGE = re.compile(r"(\d+)(?:\.| (user|assistant):) (.+)")
_ASKED = re.compile(r"(\w+)(?: ([\d,]+))?: (.+)")
_FOLDER = Path(__file__).parent

LEAST_PRECISION = 0.45
LEAST_SILENT = 0.75


@dataclass(frozen=True, slots=True)
class Set:
    """Who said what, in order, and questions: kind, numbers of what answers them, text."""

    messages: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    questions: list[tuple[str, frozenset[str], str]] = field(default_factory=list[tuple[str, frozenset[str], str]])


@dataclass
class Recalled:
    """By question: tokens, share of its evidence that is shown, share of what is shown that is evidence."""

    tokens: list[int] = field(default_factory=list[int])
    recall: list[float] = field(default_factory=list[float])
    precision: list[float] = field(default_factory=list[float])

    def add(self, shown: Iterable[str], tokens: int, evidence: frozenset[str]) -> None:
        messages = set(shown)
        self.tokens.append(tokens)
        if evidence:
            self.recall.append(len(evidence & messages) / len(evidence))
            self.precision += [len(evidence & messages) / len(messages)] if messages else []


def read_sets(name: str) -> list[Set]:
    """Return the sets of `notes` or `chats`."""
    sets: list[Set] = []
    for line in (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            sets.append(Set())
        elif spoken := _MESSAGE.fullmatch(line):
            sets[-1].messages.append((spoken[2] or "user", spoken[3]))
        elif asked := _ASKED.fullmatch(line):
            sets[-1].questions.append((asked[1], frozenset(filter(None, (asked[2] or "").split(","))), asked[3]))
    return sets


@contextmanager
def store(messages: Sequence[tuple[str, str]], *, are_notes: bool) -> Generator[Adapter]:
    """Yield a memory of one session; the id of a message is its number."""
    begin = datetime(2026, 5, 1, 9)  # noqa: DTZ001 - as the other files have it
    step = timedelta(days=1) if are_notes else timedelta(minutes=1)
    with tempfile.TemporaryDirectory(prefix="massmem-bench-") as folder:
        memory = Adapter(Path(folder))
        try:
            for i, (who, text) in enumerate(messages):
                moment = {"ts": (begin + i * step).isoformat(), "turn": -1 if are_notes else i // 2}
                memory.add([{"id": str(i + 1), "session": "notes", "agent": who, "text": text, **moment}])
            yield memory
        finally:
            memory.close()


def measure(name: str, everyday: Sequence[str]) -> dict[tuple[str, str], Recalled]:
    """Return what is recalled by half of the sets ("chosen on", "held out") and kind of question."""
    figures: dict[tuple[str, str], Recalled] = {}
    for number, one in enumerate(read_sets(name)):
        half = "held out" if number % 2 else "chosen on"
        with store(one.messages, are_notes=name == "notes") as memory:
            for kind, evidence, text in [*one.questions, *(("everyday", frozenset[str](), text) for text in everyday)]:
                result = memory.recall(text, _BUDGET)
                shown = (i for m in result.memories for i in m.message_ids)
                figures.setdefault((half, kind), Recalled()).add(shown, result.tokens, evidence)
    return figures


def list_rows(everyday: Sequence[str]) -> list[Row]:
    """Rows for notes, chats and statements. everyday: questions that have nothing to do with any of them."""
    rows: list[Row] = []
    for name in ("notes", "chats"):
        for (half, kind), of in measure(name, everyday).items():
            what, silent = f"{name}, {half}, {kind}", round(mean(tokens == 0 for tokens in of.tokens), 3)
            note = f"{mean(of.tokens):.0f} tokens; {len(of.tokens)} questions"
            if of.recall:
                precision = round(mean(of.precision or [0]), 3)
                note = f"recall {mean(of.recall):.3f}, silent {silent}, {note}"
                is_bound = kind in ("fact", "update")
                row = at_least(f"{what}: precision", precision, "", LEAST_PRECISION, note)
                rows.append(row if is_bound else reported(f"{what}: precision", precision, "", note))
            elif kind == "near":
                rows.append(reported(f"{what}: silent", silent, "", note))
            else:
                rows.append(at_least(f"{what}: silent", silent, "", LEAST_SILENT, note))
    for language, pairs in json.loads((_FOLDER / "statements.json").read_bytes()).items():
        with store([("user", statement) for statement, _ in pairs], are_notes=True) as memory:
            shown = [memory.recall(question, _BUDGET).memories for _, question in pairs]
        hits = sum(any(str(i + 1) in m.message_ids for m in memories) for i, memories in enumerate(shown))
        note = f"{mean(map(len, shown)):.1f} shown"
        rows.append(reported(f"{len(pairs)} statements in other words, {language}: shown", hits, "", note))
    return rows
