"""The debug file of an extraction, written with `--debug`: what was sent, and which facts came back."""

import json
import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from massmem.config.home import explain_write_error, make_folder
from massmem.core.redact import redact_values
from massmem.memory.extraction.facts import normalize_fact
from massmem.memory.extraction.messages import Origin, RecordedMessage
from massmem.memory.persistent import Fact
from massmem.memory.points import fact_id

_TOOL = re.compile(r"^\[Tool Call: ([^\]\n]{1,200})\]$", re.MULTILINE)


def make_debug_record(
    messages: Sequence[RecordedMessage], origin: Origin, facts: Sequence[Fact], moment: datetime
) -> dict[str, Any]:
    """Return one extraction as it is written. facts: what came of it; their ids are those of the index."""
    tools = list(dict.fromkeys(name for message in messages for name in _TOOL.findall(message.text)))
    return {
        "timestamp": moment.isoformat(),
        "agent_id": origin.agent_id,
        "session_id": origin.session_id,
        "turn": origin.turn,
        "metadata": {"tools_used": tools, "has_tools": bool(tools), "message_count": len(messages)},
        "messages_sent": [{"role": message.role, "content": message.text} for message in messages],
        "facts_extracted": [{"id": _id(fact), "memory": fact.text, "event": "ADD"} for fact in facts],
        "extraction_count": len(facts),
    }


def _id(fact: Fact) -> str:
    return str(fact_id(fact, normalize_fact(fact.text)))


def write_debug(log_folder: Path, attempt: int, record: dict[str, Any]) -> Path:
    """Write a record, without secrets, to a new file that only its owner may read; returns its path.

    log_folder: of this run. attempt: the round of the turn, from 1.

    Raises:
        HomeError, StoreError: it cannot be written.
    """
    folder = log_folder / f"attempt_{attempt}" / "memory_debug" / record["agent_id"]
    make_folder(folder)
    stamp = f"{datetime.fromisoformat(record['timestamp']):%Y%m%d_%H%M%S}"
    text = json.dumps(redact_values(record), ensure_ascii=False, indent=2)
    path, descriptor = _create_file(folder, f"turn_{record['turn']}_{stamp}")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{text}\n")
    return path


def _create_file(folder: Path, name: str) -> tuple[Path, int]:
    number = 1
    while True:
        path = folder / f"{name}{f'_{number}' if number > 1 else ''}.json"
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1  # a second extraction within the second
        except OSError as e:
            raise explain_write_error(path, e) from e
