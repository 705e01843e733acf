"""How much of what answers a question is recalled: conversations with questions, and the messages that answer them.

A file holds `messages` (id, session, turn, agent, role, ts, text) and `questions` (question, answer, category, and
`evidence`: ids of messages, or `evidence_sessions`: ids up to the colon). Sets are told apart by the file's name.
"""

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import mean, median
from typing import Any

from massmem.memory.tokens import count_tokens
from scripts.benches.memory_adapter import Adapter
from scripts.benches.process import BenchError
from scripts.benches.rows import resample

SETS = {"conv-": "locomo", "beam100k-": "beam100k", "lme-": "lme"}

_BUDGET = 1000
_UNSCORED = "adversarial"
_SMALL = re.compile(
    r"a|an|the|of|to|in|on|at|and|or|is|was|were|be|been|being|by|for|with|from|as|it|its|his|her|their|they|he|she|i|you"
    r"|my|your|that|this"
)

Figures = dict[str, float]


def measure(folder: Path, opened: Callable[[Path], Adapter]) -> dict[str, dict[str, Any]]:
    """The figures of each set that has files in the folder.

    Raises:
        BenchError: there is no such file.
    """
    files = {name: sorted(folder.glob(f"{prefix}*.json")) for prefix, name in SETS.items()}
    if not any(files.values()):
        raise BenchError(f"no {', '.join(f'{prefix}*.json' for prefix in SETS)} in {folder}")
    return {name: _of_set(found, opened) for name, found in files.items() if found}


def _of_set(files: Sequence[Path], opened: Callable[[Path], Adapter]) -> dict[str, Any]:
    count_tokens("load the vocabulary")
    search_ms: list[float] = []
    conversations = [_of_conversation(json.loads(file.read_bytes()), opened, search_ms) for file in files]
    return {
        "conversations": len(files),
        "questions": sum(map(len, conversations)),
        **_mean([one for part in conversations for _, one in part]),
        "categories": _by_category([one for part in conversations for one in part]),
        "search_cpu_p50_ms": round(median(search_ms), 2),
    }


def _mean(figures: Sequence[Figures]) -> Figures:
    names = dict.fromkeys(name for one in figures for name in one)
    return {name: round(mean(one[name] for one in figures if name in one), 4) for name in names}


def _by_category(questions: Sequence[tuple[str, Figures]]) -> dict[str, dict[str, float]]:
    """Recall within 1,000 tokens of each category, with its interval."""
    of_category: dict[str, list[float]] = {}
    for category, figures in questions:
        of_category.setdefault(category, []).append(figures["recall@1000tok"])
    shown: dict[str, dict[str, float]] = {}
    for category, recalls in sorted(of_category.items()):
        low, high = resample(recalls)
        numbers = {"recall@1000tok": mean(recalls), "low": low, "high": high}
        shown[category] = {name: round(number, 3) for name, number in numbers.items()} | {"questions": len(recalls)}
    return shown


def _of_conversation(
    conversation: Mapping[str, Any], opened: Callable[[Path], Adapter], search_ms: list[float]
) -> list[tuple[str, Figures]]:
    """Category and figures of each question."""
    with tempfile.TemporaryDirectory(prefix="massmem-bench-") as folder:
        memory = opened(Path(folder))
        try:
            for _, session in groupby(conversation["messages"], lambda m: m["session"]):
                memory.add(list(session))
            texts = {m["id"]: m["text"] for m in conversation["messages"]}
            questions = list_scored(conversation["questions"])
            return [(q["category"], _of_question(memory, q, texts, search_ms)) for q in questions]
        finally:
            memory.close()


def list_scored(questions: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for question in questions:
        if (question.get("evidence") or question.get("evidence_sessions")) and question["category"] != _UNSCORED:
            yield question


def _of_question(
    memory: Adapter, question: Mapping[str, Any], texts: Mapping[str, str], search_ms: list[float]
) -> Figures:
    by_session = bool(question.get("evidence_sessions"))
    wanted = set(question["evidence_sessions"] if by_session else question["evidence"])
    start = time.process_time()
    text, ids = memory.context(question["question"], _BUDGET)
    search_ms.append(1000 * (time.process_time() - start))
    figures = _of_text(text, question["answer"], [texts[i] for i in ids])
    if figures["tokens@1000tok"] > _BUDGET:
        raise BenchError(f"{figures['tokens@1000tok']} tokens were shown within a budget of {_BUDGET}")
    recalled = {i.split(":")[0] for i in ids} if by_session else ids
    return figures | {"recall@1000tok": len(wanted & recalled) / len(wanted)}


def _of_text(text: str, answer: str, claimed: Sequence[str]) -> Figures:
    """Share of the answer's words in the text; share of the words of the messages that it claims to hold."""
    there = set(_words(text))
    of_answer = set(_words(answer))
    found: Figures = {"tokens@1000tok": count_tokens(text)}
    if of_answer:
        found["answer@1000tok"] = len(of_answer & there) / len(of_answer)
    if claimed:
        shares = [len(of & there) / len(of) if (of := set(_words(message))) else 1.0 for message in claimed]
        found["claimed_words@1000tok"] = mean(shares)
    return found


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if not _SMALL.fullmatch(word)]
