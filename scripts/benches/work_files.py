"""The files of the bench `work`, and the MCP server that offers them.

`python -m scripts.benches.work_files FOLDER LOG` is a stdio server for the files below FOLDER. Each call is written to
LOG, a line of JSON, before it is answered.
"""

import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = "docs"
"""The folder with all files."""

_AREAS = ("billing", "ledger", "search", "mail", "upload", "export", "session", "cache", "report", "invoice")
_PARTS = ("reader", "writer", "worker", "gateway", "queue", "index")
_COLOURS = ("amber", "azure", "coral", "ivory", "jade", "olive", "pearl", "ruby", "sable", "topaz")
_ANIMALS = ("falcon", "heron", "lynx", "otter", "raven", "stoat")
_SUBJECTS = (
    "The team", "This module", "The scheduler", "An operator", "The nightly job", "Every instance", "The caller",
    "The second replica", "A client in another region", "The on-call engineer",
)  # fmt: skip
_VERBS = (
    "waits for", "writes", "checks", "hands over", "compares", "throws away", "keeps a copy of", "reads", "signs",
    "describes",
)  # fmt: skip
_OBJECTS = (
    "the rows that came in since midnight", "a batch of {n} records", "the header before the body", "its own lease",
    "what the last deployment left behind", "the certificate of the other side", "{n} entries at a time",
    "the totals of each customer", "messages older than {n} minutes", "the list of partners",
)  # fmt: skip
_ENDINGS = (
    "so that nothing has to be done by hand", "unless the disk is nearly full", "and says so in the log",
    "because the old format had no version", "before the day is closed", "as agreed with the auditors",
    "which took {n} ms in the last measurement", "and then goes back to sleep", "except on the first of a month",
)  # fmt: skip


def write_files(folder: Path, number: int, size: tuple[int, int], seed: int = 29) -> dict[str, int]:
    """Write `number` files of prose below `folder`/docs, each with the retry limit of one module in it.

    number: at most 60. size: least and most characters of a file.

    Returns:
        The limit of each module. Names of files say nothing about modules: who knows a limit need not know the file.
    """
    dice = random.Random(seed)
    modules = [f"{colour}-{animal}" for animal in _ANIMALS for colour in _COLOURS]
    dice.shuffle(modules)
    limits = {module: dice.randint(11, 989) for module in modules[:number]}
    names = (f"{area}-{part}.md" for part in _PARTS for area in _AREAS)
    (folder / DOCS).mkdir(parents=True)
    for name, (module, limit) in zip(names, limits.items(), strict=False):
        (folder / DOCS / name).write_text(_write_prose(dice, module, limit, dice.randint(*size)))
    return limits


def read_calls(log: Path) -> list[Mapping[str, str]]:
    """Return the calls that the server has written to its log."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _write_prose(dice: random.Random, module: str, limit: int, size: int) -> str:
    sentences: list[str] = []
    while sum(map(len, sentences)) < size:
        words = (dice.choice(_SUBJECTS), dice.choice(_VERBS), dice.choice(_OBJECTS))
        sentence = f"{' '.join(words)} {dice.choice(_ENDINGS)}."
        sentences.append(sentence.replace("{n}", str(dice.randint(2, 900))))
    sentences.insert(dice.randrange(len(sentences)), f"The retry limit of module {module} is {limit}.")
    paragraphs = (" ".join(sentences[i : i + 5]) for i in range(0, len(sentences), 5))
    return f"# How {module} works\n\n" + "\n\n".join(paragraphs) + "\n"


def main() -> None:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    root, log = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    server = MCPServer("files")

    def resolve(tool: str, path: str) -> Path:
        with log.open("a") as file:
            file.write(json.dumps({"tool": tool, "path": path}) + "\n")
        place = (root / path).resolve()
        if not place.is_relative_to(root) or not place.exists():
            raise ToolError(f"there is no {path}")
        return place

    @server.tool()
    def list_directory(path: str) -> str:
        """List the files and folders in a folder. path: relative, `.` is the topmost folder."""
        entries = sorted(resolve("list_directory", path).iterdir())
        return "\n".join(f"[{'DIR' if entry.is_dir() else 'FILE'}] {entry.name}" for entry in entries)

    @server.tool()
    def read_file(path: str) -> str:
        """Read the whole text of a file."""
        return resolve("read_file", path).read_text()

    server.run("stdio")


if __name__ == "__main__":
    main()
