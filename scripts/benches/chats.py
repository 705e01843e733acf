"""Chats: what memory makes of plain words: updates, negations, corrections, and what is said in jest or quoted.

Each chat is played among six others about something else. A file has one as JSON per line: `kind`, `chat` (day of May
2026, who speaks, what), `question`, and what must be true of what is recalled for it: `want` is there; `stale` stands
in no line without a mark that it is past or that something newer was said; `not_held` in no line as a fact that holds;
`current`, where it is given, in no line that is marked as past.
"""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from massmem.memory.persistent import RecallResult
from scripts.benches.memory_adapter import Adapter
from scripts.benches.process import BenchError
from scripts.benches.rows import Row, at_least, at_most

CHATS = Path(__file__).parents[2] / "tests/data/chats/chats.jsonl"

_OTHERS = (
    ("I repotted the basil and it looks happier.", "Good, give it light."),
    ("Can you explain how tides work?", "The moon pulls the water."),
    ("I need a short poem for a farewell card.", "Here is one about new roads."),
    ("What is a good way to clean a bike chain?", "Use a degreaser and a brush."),
    ("We watched a film about octopuses.", "They are clever animals."),
    ("How do I resize a picture in bulk?", "Use a script with a loop."),
)
_IS_PAST = re.compile(r"\b(?:held|until|no longer|otherwise|newer)\b", re.IGNORECASE)
_HOLDS = re.compile(r"\bsince \d|\bholds\b", re.IGNORECASE)
_OTHER = "session_other"
_ROOM = 1_000
_LEAST_SHARE, _MOST_OTHERS = 0.85, 0.2


def run(data: Path = CHATS) -> list[Row]:
    """data: a file of chats. Raises BenchError: there is none."""
    if not data.is_file():
        raise BenchError(f"{data} is no file of chats")
    chats = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    played = [play(chat) for chat in chats]
    faults = [fault for fault, _ in played if fault]
    return [
        at_least("chats that are recalled rightly", 1 - len(faults) / len(chats), "", _LEAST_SHARE, "; ".join(faults)),
        at_most("passages of other chats in each", sum(n for _, n in played) / len(chats), "", _MOST_OTHERS),
    ]


def play(chat: Mapping[str, Any]) -> tuple[str, int]:
    """Return what is wrong with what is recalled, "" when nothing is, and how much of the other chats is in it."""
    recall = recall_chat(chat)
    lines = recall.text.split("\n")
    wrong = [f"{text} is missing" for text in chat["want"] if text not in recall.text]
    wrong += [f"{t} is not marked" for t in chat["stale"] if any(t in x and not _IS_PAST.search(x) for x in lines)]
    wrong += [f"{t} holds" for t in chat["not_held"] if any(t in x and _HOLDS.search(x) for x in lines)]
    wrong += [f"{t} is marked" for t in chat.get("current", ()) if any(t in x and _IS_PAST.search(x) for x in lines)]
    others = sum(memory.session_id.startswith(_OTHER) for memory in recall.memories)
    return f"{chat['question']} {', '.join(wrong)}" if wrong else "", others


def recall_chat(chat: Mapping[str, Any]) -> RecallResult:
    with tempfile.TemporaryDirectory(prefix="massmem-bench-") as folder:
        memory = Adapter(Path(folder))
        try:
            for number, texts in enumerate(_OTHERS):
                lines = [(1 + number, *line) for line in zip(("user", "assistant"), texts, strict=True)]
                memory.add(_messages(f"other{number}", lines, 4))
            for day in dict.fromkeys(day for day, *_ in chat["chat"]):
                memory.add(_messages(f"day{day}", [line for line in chat["chat"] if line[0] == day], 5))
            return memory.recall(chat["question"], _ROOM)
        finally:
            memory.close()


def _messages(session: str, lines: Sequence[Sequence[Any]], month: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{session}-{number}",
            "session": session,
            "turn": number // 2,
            "agent": who,
            "ts": datetime(2026, month, day, 10, number, tzinfo=UTC).isoformat(),
            "text": text,
        }
        for number, (day, who, text) in enumerate(lines)
    ]
