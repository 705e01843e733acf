"""Jupyter notebooks as text: cells and what they printed, in their order; pictures apart from it."""

import json
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from massmem.core.attachments import Attachment, clean_name, detect_media_type, has_end, make_attachment
from massmem.core.messages import clean_text
from massmem.tools.encodings import decode_text

MAX_PICTURES = 20
"""That are shown of one notebook; the others are named."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_Fields = Mapping[str, Any]


def read_notebook(name: str, data: bytes) -> tuple[str, tuple[Attachment, ...]]:
    """Return the text of a notebook, which names its pictures, and the pictures, `optional`.

    A file that is no notebook is returned as the text that it is.

    Raises InputError: it is no text.
    """
    text, _ = decode_text(name, data)
    try:
        notebook: Any = json.loads(text)
        cells = cast("list[_Fields]", notebook["cells"])
        metadata = notebook.get("metadata", {})
        reader = _Reader(clean_name(name), str(metadata.get("kernelspec", {}).get("language", "python")))
        parts = [part for number, cell in enumerate(cells, 1) for part in reader.read_cell(number, cell)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return text, ()
    return clean_text("\n\n".join(part for part in parts if part.strip())), tuple(reader.pictures)


@dataclass(slots=True)
class _Reader:
    name: str
    language: str
    pictures: list[Attachment] = field(default_factory=list[Attachment])

    def read_cell(self, number: int, cell: _Fields) -> Iterator[str]:
        source = _join(cell.get("source", ""))
        yield _fence(source, self.language) if cell.get("cell_type") == "code" else source
        for attached in cell.get("attachments", {}).values():
            yield from self._read_data(number, attached)
        for output in cell.get("outputs", ()):
            match output.get("output_type"):
                case "stream":
                    yield _fence(_join(output.get("text", "")))
                case "error":
                    yield _fence(_COLOURS.sub("", "\n".join(output.get("traceback", ()))))
                case _:
                    yield from self._read_data(number, output.get("data", {}))

    def _read_data(self, number: int, data: _Fields) -> Iterator[str]:
        """Yield what an output says: its plainest text, and a line for its picture."""
        pictures = [kind for kind in data if kind.startswith("image/")]
        texts = [kind for kind in ("text/markdown", "text/plain", "text/html", "application/json") if kind in data]
        if pictures:
            yield self._read_picture(number, pictures[0], _join(data[pictures[0]]))
        elif texts:
            value = data[texts[0]]
            yield _fence(_join(value) if isinstance(value, str | list) else json.dumps(value, ensure_ascii=False))

    def _read_picture(self, number: int, media_type: str, encoded: str) -> str:
        try:
            data = b64decode(encoded)
        except (NotBase64, ValueError):
            data = b""
        media_type = detect_media_type(data) or media_type
        is_shown = detect_media_type(data) is not None and has_end(media_type, data)
        if not is_shown or len(self.pictures) >= MAX_PICTURES:
            return f"[picture of cell {number}: {media_type}, not shown]"
        name = f"{self.name} picture {len(self.pictures) + 1}"
        self.pictures.append(make_attachment(name, media_type, data, optional=True))
        return f"[picture of cell {number}: {name}]"


def _join(text: Any) -> str:
    return "".join(map(str, cast("list[Any]", text))) if isinstance(text, list) else str(text)


def _fence(text: str, language: str = "") -> str:
    """Return a block of code that nothing in it ends."""
    if not text.strip():
        return ""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"
