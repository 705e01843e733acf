"""Whether recall is silent when nothing stored matters, and speaks when something does, over stores of several sizes.

Notes, chats and statements are here (notes.py). With conversations, the files of the bench memory, each store is asked
everyday questions, in four languages; questions about conversations that are not in it; its own questions, whose
evidence is recalled with silence on and off.
"""

import json
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any, TypeVar

from massmem.memory.persistent import RecallResult
from massmem.memory.words import split_passages
from scripts.benches.memory_adapter import Adapter
from scripts.benches.memory_recall import list_scored
from scripts.benches.notes import list_rows
from scripts.benches.process import BenchError
from scripts.benches.rows import Row, at_least, at_most, reported, resample

SIZES = {"nine conversations": 0, "24,000 memories": 24_000, "50,000 memories": 50_000}
"""Most memories of the larger stores; 0: as many as nine conversations have."""
_ALONE = 3
"""Conversations of each set that are asked alone."""
_ASKED = 100
"""Most questions of each kind and store."""
_BUDGET = 1000

LOCOMO, BEAM = "conv-*.json", "beam*.json"

T = TypeVar("T")

Conversation = Mapping[str, Any]


@dataclass
class Answers:
    """What was recalled for questions of one kind."""

    tokens: list[float] = field(default_factory=list[float])
    milliseconds: list[float] = field(default_factory=list[float])
    evidence: list[float] = field(default_factory=list[float])
    """Share of each question's evidence that is shown."""
    precision: list[float] = field(default_factory=list[float])
    """Share of the messages shown that are evidence, of each question that is shown something."""
    without_silence: list[float] = field(default_factory=list[float])
    """The same with silence off."""

    @property
    def silent(self) -> float:
        return mean(tokens == 0 for tokens in self.tokens)

    def add(self, other: "Answers") -> None:
        for name in ("tokens", "milliseconds", "evidence", "precision", "without_silence"):
            getattr(self, name).extend(getattr(other, name))


def run(data: Path | None = None) -> list[Row]:
    """Rows for each kind of store. data: the folder with the conversations; None: notes, chats and statements alone.

    Raises:
        BenchError: there are too few conversations.
    """
    everyday = read_everyday_questions()
    rows = list_rows(everyday[::2])
    if data is None:
        return rows
    locomo, beam = ([_read(file) for file in sorted(data.glob(pattern))] for pattern in (LOCOMO, BEAM))
    if len(locomo) < 2 or len(beam) < 2:
        raise BenchError(f"too few of {LOCOMO} and {BEAM} in {data}")
    for name, alone in (("one LoCoMo conversation", locomo), ("one BEAM conversation", beam)):
        answers: dict[str, Answers] = {}
        sizes: list[int] = []
        for conversation in alone[:_ALONE]:
            print(f"{name}: {conversation['id']} ...", file=sys.stderr)
            size, more = ask([conversation], [*locomo, *beam], everyday)
            sizes.append(size)
            for kind, of_kind in more.items():
                answers.setdefault(kind, Answers()).add(of_kind)
        rows += _make_rows(f"{name}, {round(mean(sizes)):,} memories", answers, least_everyday=0.9)
    for name, most in SIZES.items():
        print(f"{name} ...", file=sys.stderr)
        size, answers = ask(choose(locomo, beam, most), [*locomo, *beam], everyday)
        rows += _make_rows(f"{name}, {size:,}" if not most else f"{size:,} memories", answers, least_everyday=0.8)
    return rows


def read_everyday_questions() -> list[str]:
    """Return questions that have nothing to do with any conversation. None of them is known to massmem."""
    by_language = json.loads(Path(__file__).with_name("everyday_questions.json").read_bytes())
    return [question for questions in by_language.values() for question in questions]


def choose(locomo: Sequence[Conversation], beam: Sequence[Conversation], most: int) -> list[Conversation]:
    """Return the conversations of a store. most: memories; 0: seven of LoCoMo and two of BEAM."""
    if not most:
        return [*locomo[:7], *beam[:2]]
    chosen: list[Conversation] = []
    room = most
    for pair in zip_longest(locomo, beam):
        for conversation in filter(None, pair):
            size = sum(len(split_passages(message["text"])) for message in conversation["messages"])
            if size <= room:
                chosen.append(conversation)
                room -= size
    return chosen


def ask(
    stored: Sequence[Conversation], conversations: Sequence[Conversation], everyday: Sequence[str]
) -> tuple[int, dict[str, Answers]]:
    """Return how many memories there are, and what is recalled by kind of question."""
    draw = Random(0)
    own = [(conversation, question) for conversation in stored for question in list_scored(conversation["questions"])]
    ids = {conversation["id"] for conversation in stored}
    others = [c for c in conversations if c["id"] not in ids]
    answers: dict[str, Answers] = {}
    with _store(stored) as memory:
        answers["everyday"] = _ask_each(memory, everyday)
        for name, of_set in (("LoCoMo", True), ("BEAM", False)):
            asked = [q["question"] for c in others if is_locomo(c) is of_set for q in list_scored(c["questions"])]
            if asked:
                answers[f"others, {name}"] = _ask_each(memory, _draw(draw, asked))
            of_own = [(c, q) for c, q in own if is_locomo(c) is of_set]
            if of_own:
                answers[f"own, {name}"] = _ask_own(memory, _draw(draw, of_own))
        return memory.count(), answers


def is_locomo(conversation: Conversation) -> bool:
    return str(conversation["id"]).startswith("conv-")


def _read(file: Path) -> Conversation:
    return json.loads(file.read_bytes()) | {"id": file.stem}


def _draw(draw: Random, values: Sequence[T]) -> list[T]:
    return draw.sample(values, min(_ASKED, len(values)))


@contextmanager
def _store(conversations: Iterable[Conversation]) -> Generator[Adapter]:
    with tempfile.TemporaryDirectory(prefix="massmem-bench-") as folder:
        memory = Adapter(Path(folder))
        try:
            for conversation in conversations:
                for _, messages in groupby(conversation["messages"], lambda m: m["session"]):
                    memory.add([_place(conversation, message) for message in messages])
            yield memory
        finally:
            memory.close()


def _place(conversation: Conversation, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message with ids that no other conversation has."""
    name = conversation["id"]
    return {**message, "id": f"{name}/{message['id']}", "session": f"{name}-{message['session']}"}


def _ask_each(memory: Adapter, questions: Iterable[str]) -> Answers:
    answers = Answers()
    for question in questions:
        _ask(memory, question, answers)
    return answers


def _ask(memory: Adapter, question: str, answers: Answers) -> RecallResult:
    start = time.process_time()
    result = memory.recall(question, _BUDGET)
    answers.milliseconds.append(1000 * (time.process_time() - start))
    answers.tokens.append(result.tokens)
    return result


def _ask_own(memory: Adapter, questions: Iterable[tuple[Conversation, Mapping[str, Any]]]) -> Answers:
    answers = Answers()
    for conversation, question in questions:
        evidence = {f"{conversation['id']}/{message_id}" for message_id in question["evidence"]}

        result = _ask(memory, question["question"], answers)
        shown = _list_messages(result)
        answers.evidence.append(len(evidence & shown) / len(evidence))
        answers.precision += [len(evidence & shown) / len(shown)] if shown else []
        loud = _list_messages(memory.recall(question["question"], _BUDGET, abstain=False))
        answers.without_silence.append(len(evidence & loud) / len(evidence))
    return answers


def _list_messages(result: RecallResult) -> set[str]:
    return {message_id for memory in result.memories for message_id in memory.message_ids}


def _make_rows(store: str, answers: Mapping[str, Answers], least_everyday: float) -> list[Row]:
    rows: list[Row] = []
    for kind, of_kind in answers.items():
        what = f"{store}: {kind}"
        if not kind.startswith("own"):
            least, most = (least_everyday, 100) if kind == "everyday" else (0.85, 150)
            rows.append(at_least(f"{what}: silent", round(of_kind.silent, 3), "", least, _interval(of_kind.tokens)))
            rows.append(at_most(f"{what}: tokens, mean", round(mean(of_kind.tokens)), "", most))
            continue
        lost = mean(of_kind.without_silence) - mean(of_kind.evidence)
        most_lost = 0.015 if "LoCoMo" in kind else 0.02  # by silence, and by what is too little beside the best
        note = (
            f"{mean(of_kind.evidence):.3f} instead of {mean(of_kind.without_silence):.3f}; silent {of_kind.silent:.3f}"
        )
        note += f"; precision {mean(of_kind.precision or [0]):.3f}, {mean(of_kind.tokens):.0f} tokens"
        rows.append(at_most(f"{what}: evidence lost", round(lost, 4), "", most_lost, note))
    of_all = [ms for of_kind in answers.values() for ms in of_kind.milliseconds]
    slowest = f"{max(of_all):.0f} for the first, which is compared with unrelated questions"
    return [*rows, reported(f"{store}: a recall, CPU p50", round(median(of_all), 1), "ms", slowest)]


def _interval(tokens: Sequence[float]) -> str:
    low, high = resample([count == 0 for count in tokens])
    return f"{low:.2f} to {high:.2f}, {len(tokens)} questions"
