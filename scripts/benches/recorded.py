"""Recorded answers of councils, small enough to ship: short results and ballots, no texts of others.

A file has a head, `{"about", "agents", "first"}`, and a line for each question: `id`, `group`, `results` (agent -> the
end of its answer, from which its result is read), `right` (agents whose result is right), `ballots` (voter -> the
agent that it voted for), `cut` (agents whose answer has no end).

`python -m scripts.benches.recorded DATA ANSWERS ABOUT > FILE` makes one: DATA are the questions of a `massmem eval`,
ANSWERS what it wrote with `--output jsonl`.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from massmem.core.short_answers import read_short_answer
from massmem.evaluation.items import load_items, score
from scripts.benches.process import BenchError

FOLDER = Path(__file__).parent / "recorded"


@dataclass(frozen=True, slots=True)
class Question:
    """How a council answered one question."""

    group: str
    results: Mapping[str, str]
    right: frozenset[str]
    ballots: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    agents: tuple[str, ...]
    first: tuple[str, ...]
    """The two that adaptive depth asks first."""
    questions: tuple[Question, ...]


def read_recordings(folder: Path = FOLDER) -> Iterator[Recording]:
    """Yield the recordings in the folder, by name. Raises BenchError: there are none, or a file is none."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise BenchError(f"there are no recorded answers (*.jsonl) in {folder}")
    for file in files:
        try:
            head, *lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
            yield Recording(file.stem, tuple(head["agents"]), tuple(head["first"]), tuple(map(_read_question, lines)))
        except (ValueError, KeyError, TypeError) as e:
            raise BenchError(f"{file} is no recording of answers: {type(e).__name__}: {e}") from e


def _read_question(line: Mapping[str, Any]) -> Question:
    right, cut = frozenset(line["right"]), frozenset(line.get("cut", ()))
    return Question(line["group"], line["results"], right, line.get("ballots", {}), cut)


def make_council(name: str, *, shared_errors: float, accuracy: float, seed: int = 0) -> Recording:
    """Return 400 questions to five agents that do not exist, whose truth is known.

    shared_errors: share of the questions that all of them answer with the same wrong result. To the others each answers
    on its own, rightly with the probability `accuracy`. Where no result has a majority, each votes for another's.
    """
    draw, agents = Random(seed), ("a", "b", "c", "d", "e")
    questions: list[Question] = []
    for _ in range(400):
        is_shared = draw.random() < shared_errors
        values = {a: 7 if is_shared else 0 if draw.random() < accuracy else draw.randint(1, 9) for a in agents}
        has_majority = max(list(values.values()).count(value) for value in values.values()) > 2
        ballots = {} if has_majority else {a: draw.choice([b for b in agents if b != a]) for a in agents}
        right = frozenset(agent for agent, value in values.items() if value == 0)
        results = {agent: f"Answer: {value}" for agent, value in values.items()}
        questions.append(Question("", results, right, ballots))
    return Recording(name, agents, agents[:2], tuple(questions))


def pack(data: Path, answers: Path, about: str) -> Iterator[str]:
    """Yield the lines of a recording of the first team in `answers`."""
    items = {item.id: item for item in load_items(data, None)}
    rows = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["team"] == rows[0]["team"]]
    agents = list(dict.fromkeys(agent for row in rows for agent in row["members"]))
    yield json.dumps({"about": about, "agents": agents, "first": agents[:2]})
    for row in rows:
        members: dict[str, str] = row["members"]
        right = [agent for agent, text in members.items() if score(items[row["id"]], text).right]
        line = {"id": row["id"], "group": row.get("group", ""), "results": {a: _shorten(t) for a, t in members.items()}}
        line |= {"right": right, "ballots": row["ballots"], "cut": sorted(row.get("cut", ()))}
        yield json.dumps({key: value for key, value in line.items() if value or key in ("group", "right")})


def _shorten(text: str) -> str:
    """Return a text from which the same result is read; of one without a result the last line, told apart by a hash."""
    short = read_short_answer(text)
    stated = f"Answer: {short.last_line}"
    if read_short_answer(stated).key == short.key:
        return stated
    return f"h{hashlib.sha256(short.key.encode()).hexdigest()[:8]}\n{short.last_line[-80:]}"


if __name__ == "__main__":
    for text in pack(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]):
        print(text)
