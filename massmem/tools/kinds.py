"""What a file is, by its bytes, and what to do with one that cannot be read."""

import re
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO

from massmem.core.errors import InputError

_TO_PNG = "save it as PNG or JPEG"
_UNPACK = "unpack it, and name the files in it that matter"
_WRITTEN = "give what is said in it as text"

_REFUSED: dict[str, tuple[str, str]] = {
    ".doc": ("a document of Word 97 to 2003", "save it as .docx or PDF"),
    ".ppt": ("a presentation of PowerPoint 97 to 2003", "save it as .pptx or PDF"),
    ".msg": ("a message of Outlook", "save it as text"),
    ".odp": ("a presentation of OpenDocument", "save it as .pptx or PDF"),
    ".odg": ("a drawing of OpenDocument", "save it as PDF or PNG"),
    ".pages": ("a document of Pages", "export it as PDF or .docx"),
    ".numbers": ("a spreadsheet of Numbers", "export it as .xlsx or CSV"),
    ".key": ("a presentation of Keynote", "export it as PDF or .pptx"),
    ".bmp": ("a BMP picture", _TO_PNG),
    **dict.fromkeys((".tif", ".tiff"), ("a TIFF picture", _TO_PNG)),
    ".heic": ("a HEIC picture", _TO_PNG),
    ".heif": ("a HEIF picture", _TO_PNG),
    ".avif": ("an AVIF picture", _TO_PNG),
    ".jxl": ("a JPEG XL picture", _TO_PNG),
    ".jp2": ("a JPEG 2000 picture", _TO_PNG),
    ".ico": ("an icon", _TO_PNG),
    ".psd": ("a picture of Photoshop", _TO_PNG),
    ".zip": ("a ZIP archive", _UNPACK),
    ".tar": ("a tar archive", _UNPACK),
    ".7z": ("a 7z archive", _UNPACK),
    ".rar": ("a RAR archive", _UNPACK),
    ".zst": ("compressed with zstd", "unpack it first: unzstd FILE"),
    **dict.fromkeys((".mp3", ".m4a", ".wav", ".ogg", ".flac"), ("a sound recording", _WRITTEN)),
    **dict.fromkeys((".mp4", ".mov", ".mkv", ".webm"), ("a film", f"{_WRITTEN}, or single pictures of it")),
    ".sqlite": ("an SQLite database", "write what matters of it to a file of text or CSV"),
    ".parquet": ("a Parquet table", "write what matters of it to a file of text or CSV"),
    ".exe": ("a program", "give its source"),
    ".mobi": ("a book for Kindle", "convert it to EPUB"),
}  # fmt: skip
"""Suffix -> what such a file is, and what to do instead."""

_BEGINNINGS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"BM", ".bmp"), (0, b"II*\0", ".tif"), (0, b"MM\0*", ".tif"), (0, b"\0\0\1\0", ".ico"), (0, b"8BPS", ".psd"),
    (0, b"\xff\x0a", ".jxl"), (4, b"JXL \r\n\x87\n", ".jxl"), (4, b"jP  \r\n\x87\n", ".jp2"),
    (0, b"7z\xbc\xaf\x27\x1c", ".7z"), (0, b"Rar!\x1a\x07", ".rar"), (257, b"ustar", ".tar"),
    (0, b"(\xb5/\xfd", ".zst"), (0, b"\x1f\x8b", ".gz"), (0, b"BZh", ".bz2"), (0, b"\xfd7zXZ\0", ".xz"),
    (0, b"ID3", ".mp3"), (0, b"OggS", ".ogg"), (0, b"fLaC", ".flac"), (8, b"WAVEfmt", ".wav"),
    (0, b"\x1aE\xdf\xa3", ".mkv"), (0, b"SQLite format 3\0", ".sqlite"), (0, b"PAR1", ".parquet"),
    (0, b"MZ", ".exe"), (0, b"\x7fELF", ".exe"), (0, b"\xcf\xfa\xed\xfe", ".exe"), (60, b"BOOKMOBI", ".mobi"),
    (0, b"{\\rtf", ".rtf"),
)  # fmt: skip
"""Place, bytes there, suffix."""
_TEXT_OR = (".bmp", ".exe", ".mp3", ".bz2")
"""Kinds whose beginning may be that of a text: `BM`, `MZ`, `ID3`, `BZh`."""

_BRANDS = {b"heic": ".heic", b"heix": ".heic", b"hevc": ".heic", b"mif1": ".heif", b"msf1": ".heif", b"avif": ".avif",
           b"M4A ": ".m4a", b"qt  ": ".mov"}  # fmt: skip
"""Of ISO's container of pictures and films; others are films."""
_STREAMS = (
    ("EncryptedPackage", ""), ("WordDocument", ".doc"), ("PowerPoint Document", ".ppt"),
    ("__properties_version", ".msg"), ("Workbook", ".xls"), ("Book", ".xls"),
)  # fmt: skip
"""In the old container of Microsoft Office."""
_PARTS = (
    ("word/document.xml", ".docx"), ("ppt/presentation.xml", ".pptx"), ("xl/workbook.xml", ".xlsx"),
    ("xl/workbook.bin", ".xlsb"), ("META-INF/container.xml", ".epub"), ("Index/Presentation.iwa", ".key"),
    ("Index/Slide.iwa", ".key"), ("Index/CalculationEngine.iwa", ".numbers"), ("Index/Document.iwa", ".pages"),
)  # fmt: skip
"""Files of a ZIP archive that tell what it is."""
_MIME_TYPES = {"application/epub+zip": ".epub"} | {
    f"application/vnd.oasis.opendocument.{name}": suffix
    for name, suffix in (("text", ".odt"), ("spreadsheet", ".ods"), ("presentation", ".odp"), ("graphics", ".odg"))
}


def detect_kind(name: str, data: bytes) -> str:
    """Return the suffix that belongs to the bytes of a file, "" for text and what is not known.

    The name decides for what is text all the same: web pages and notebooks.

    Raises InputError: it is encrypted, or an archive that was cut off.
    """
    if data.startswith(b"PK\x03\x04"):
        return _detect_in_archive(name, data)
    if data.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return _detect_in_container(name, data)
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], ".mp4")
    kind = next((kind for place, start, kind in _BEGINNINGS if data.startswith(start, place)), "")
    if kind in _TEXT_OR and b"\0" not in data[:4_096] and all(9 <= byte < 127 for byte in data[:512]):
        kind = ""
    suffix = get_suffix(name)
    return kind or (suffix if suffix in (".html", ".htm", ".xhtml", ".ipynb") else "")


def require_readable(name: str, kind: str) -> None:
    """Raise InputError for a file of a kind that cannot be read."""
    if kind in _REFUSED:
        what, hint = _REFUSED[kind]
        raise InputError(f"{name} is {what}, which cannot be read", hint)


def can_read(kind: str) -> bool:
    """Whether files of a kind, as `detect_kind` returns it, can be read, after installing a package at most."""
    return kind not in _REFUSED


def get_suffix(name: str) -> str:
    """Return the suffix of a file's name, in lower case and with its dot; "" for none."""
    suffix = re.search(r"[^/\\](\.[A-Za-z0-9]{1,8})$", name)
    return suffix[1].lower() if suffix else ""


@contextmanager
def explain_damage(name: str) -> Generator[None]:
    """Raise InputError when the block cannot read a ZIP archive."""
    try:
        yield
    except RecursionError:  # a RuntimeError, too
        raise
    except NotImplementedError as e:  # as Windows packs large archives
        raise InputError(f"{name} is packed in a way that cannot be read", "unpack it, and give what is in it") from e
    except RuntimeError as e:
        raise InputError(f"{name} is encrypted", "unpack it with its password, and give what is in it") from e
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError) as e:
        raise InputError(f"{name} is damaged, or was not downloaded whole", "copy or download it again") from e


def _detect_in_archive(name: str, data: bytes) -> str:
    with explain_damage(name), zipfile.ZipFile(BytesIO(data)) as archive:
        names = set(archive.namelist())
        if "mimetype" in names and archive.getinfo("mimetype").file_size < 100:
            mime_type = archive.read("mimetype").decode("ascii", "replace").strip()
            if mime_type in _MIME_TYPES:
                return _MIME_TYPES[mime_type]
    return next((suffix for part, suffix in _PARTS if part in names), ".zip")


def _detect_in_container(name: str, data: bytes) -> str:
    for stream, suffix in _STREAMS:
        if stream.encode("utf-16-le") in data:
            if not suffix:
                raise InputError(f"{name} is encrypted with a password", "save a copy without a password")
            return suffix
    suffix = get_suffix(name)
    return suffix if suffix in (".doc", ".xls", ".ppt", ".msg") else ".doc"
