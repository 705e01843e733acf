"""Documents: the text that an agent gets of a file, or the file itself where it has to be seen.

Documents, slides, books, web pages, spreadsheets and mails become Markdown, a notebook its cells and what they printed.
Files of strangers decide what they compute, and one of a few kilobytes may unpack to gigabytes: so they are read in a
worker process, see `read_files`.
"""

import bz2
import json
import logging
import lzma
import re
import unicodedata
import zipfile
import zlib
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any, NamedTuple, cast

from massmem.core.errors import InputError
from massmem.core.messages import (
    PDF,
    Attachment,
    add_text,
    clean_name,
    clean_text,
    detect_media_type,
    has_end,
    is_animated,
    make_attachment,
)
from massmem.isolation import call_isolated, run_isolated
from massmem.tools.encodings import decode_text
from massmem.tools.mails import MAIL, read_mail, unpack
from massmem.tools.office import Reading, parse, read_html, read_package
from massmem.tools.sheets import read_workbook

SECONDS = 20.0  # for the files of a question
MAX_UNPACKED = 50_000_000  # bytes of a compressed file
_MAX_PAGES = 5_000
_MAX_TEXT = 2_000_000  # characters of the files of a question, which is shorter
_MAX_CONTENT = 30_000_000  # bytes of what is drawn on the pages of a PDF
_ASK_PART = "save the part that matters as a file of its own"
_SMALL = 200_000  # bytes of a text that is read in this process
_TEXT_ENCODINGS = re.compile(
    "(?i)ascii|us-|utf|latin|iso|cp|ibm|win|koi|mac|x-mac|gb|big5|euc|sh|s_?j|x-sj|ms|ks|hz|tis"
)
"""Beginnings of their names. Others unpack, or take minutes for a megabyte, as punycode does."""
_CONTAINERS = (b"PK", b"\xd0\xcf\x11\xe0")  # beginnings of archives, whose contents tell their kind

# pypdf and pdf_oxide raise their own errors and, for many a damaged file, whatever their code meets there.
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, OSError, AssertionError)
_COMPRESSED: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    ".gz": (lambda: zlib.decompressobj(wbits=31), zlib.error),
    ".bz2": (bz2.BZ2Decompressor, OSError),
    ".xz": (lzma.LZMADecompressor, lzma.LZMAError),
}
_DETECTED = (
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".webp",
    ".pdf",
)  # kinds that `detect_media_type` knows by their beginning
_SHOWN_PAGES = 10
_XFA_VALUES = "//*[local-name()='data']//*[normalize-space() and not(*)]"


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a file."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    """Content that has to be seen. With a text beside it, it is `optional`."""
    note: str = ""
    """A remark for the user on how it was read; "" for none."""

    @property
    def is_seen(self) -> bool:
        """Whether models see it as it looks, and its text is not shown."""
        return any(not attachment.optional for attachment in self.attachments)


class File(NamedTuple):
    read: Callable[[str, bytes], Document]
    """`read_document`, `read_page` or `read_picture`; or a part of `read_encoded`."""
    name: str
    data: bytes


async def read_files(files: Sequence[File], caller: str | None = None) -> list[Document]:
    """Read files; in a worker process, unless all are small texts. caller: as for `run_isolated`.

    Raises:
        InputError: one cannot be read, or all together take longer than SECONDS, or too much memory.
        BusyError: too many other files are being read.
    """
    if all(map(_is_small_text, files)):
        return _read_all(files)
    return await run_isolated(_read_all, files, what=_name_all(files), seconds=SECONDS, caller=caller)


def read_file_apart(file: File) -> Document:
    """Read a file, as `read_files` does, and wait for it."""
    files = [file]
    is_small = _is_small_text(file)
    return (_read_all(files) if is_small else call_isolated(_read_all, files, what=file.name, seconds=SECONDS))[0]


def is_document(name: str, start: bytes) -> bool:
    """Return whether a file is no plain text that it shows as it is, by its first bytes, or by its name a notebook.

    Web pages are plain text here: programs have them as sources.
    """
    if start.startswith(_CONTAINERS) or detect_media_type(start) is not None or _get_suffix(name) == ".ipynb":
        return True
    return _detect_kind("", start) != ""


def _read_all(files: Sequence[File]) -> list[Document]:
    documents = [file.read(file.name, file.data) for file in files]
    if sum(len(document.text) for document in documents) > _MAX_TEXT:
        raise InputError(f"{_name_all(files)}: more than {_MAX_TEXT:,} characters", _ASK_PART)
    return documents


def _name_all(files: Sequence[File]) -> str:
    return files[0].name + (f" and {len(files) - 1} more" if len(files) > 1 else "")


def _is_small_text(file: File) -> bool:
    """Whether reading takes no time, and not more memory than the file."""
    name, data = file.name, file.data
    is_small = file.read in (read_document, read_picture) and len(data) <= _SMALL
    return is_small and not is_document(name, data) and _detect_kind(name, data) == ""


def read_document(name: str, data: bytes) -> Document:
    """Return the text of a file; a picture, and a PDF without text, as an attachment.

    Office documents, books and web pages become Markdown; a compressed file is unpacked. What a stranger's file makes
    of it nothing here limits: call `read_files`.

    Raises InputError: it cannot be read: of an unknown kind or encoding, encrypted, damaged, cut off, or too large, or
    a package is missing.
    """
    match detect_media_type(data):
        case None:
            return _read_by_kind(name, data)
        case "application/pdf":
            return _read_pdf(name, _find_pdf(data))
        case media_type:
            return _make_picture(name, media_type, data)


def add_document(question: str, name: str, document: Document) -> str:
    """Return the question with the text of a document below it, if it has one to show."""
    return question if document.is_seen else add_text(question, name, document.text)


def read_page(name: str, data: bytes) -> Document:
    """Return the title and the main text of a page of HTML. name: its address.

    Raises InputError: it has no text, or its encoding is not known, or a package is missing.
    """
    text, note = decode_text(name, data)
    with explain_damage(name):
        from trafilatura import extract, extract_metadata
    # In doubt more of the page: what is superfluous costs tokens, what is missing costs the answer.
    main = extract(text, url=name, output_format="markdown", favor_recall=True, include_comments=False)
    if not main:
        raise InputError(
            f"{name} has no text: it may be made by a script in the browser",
            "open it in a browser, save it as PDF or copy its text to a file, and name that",
        )
    metadata = extract_metadata(text, default_url=name)
    title = " ".join(str(metadata.title or "").split()) if metadata else ""
    has_title = not title or title in main[: 2 * len(title) + 10]
    return Document(clean_text(main if has_title else f"# {title}\n\n{main}"), note=note)


def read_encoded(charset: str, is_page: bool, name: str, data: bytes) -> Document:
    """Read a text in the encoding that its server names, if it is one of texts. Raises InputError."""
    if _TEXT_ENCODINGS.match(charset):
        with suppress(LookupError):
            data = data.decode(charset, "replace").encode()
    return (read_page if is_page else read_document)(name, data)


def read_picture(name: str, data: bytes) -> Document:
    """Return a picture, or a PDF as it looks.

    Raises InputError: it is neither, the PDF is encrypted or damaged, or the picture cut off.
    """
    match detect_media_type(data):
        case None:
            _require_readable(name, _detect_kind(name, data))
            raise InputError(
                f"{name} is no picture that models can see", "give a PNG, JPEG, GIF or WebP file, or a PDF"
            )
        case "application/pdf":
            data = _find_pdf(data)
            with _open_pdf(name, data) as reader:
                return Document(attachments=(make_attachment(name, PDF, data, len(reader.pages)),))
        case media_type:
            return _make_picture(name, media_type, data)


def _read_by_kind(name: str, data: bytes) -> Document:
    kind = _detect_kind(name, data)
    _require_readable(name, kind)
    if kind in _COMPRESSED:
        return _read_compressed(name, kind, data)
    if kind == ".ipynb":
        return Document(*read_notebook(name, data))
    if kind == ".eml":
        return _make_document(name, read_mail(data))
    if kind in (*SPREADSHEETS, *DOCUMENTS):
        with explain_damage(name):
            return _make_document(name, (read_workbook if kind in SPREADSHEETS else read_package)(name, kind, data))
    if kind in PAGES and find_spec("anydoc"):
        text, note = decode_text(name, data)
        return _make_document(name, read_html(name, text), note)
    try:
        text, note = decode_text(name, data)
    except InputError as e:
        if (suffix := _get_suffix(name)) in _DETECTED:
            raise InputError(f"{name} does not begin like a {suffix} file", "copy or download it again") from e
        raise
    return _make_document(name, (text, []), note)


def _make_document(name: str, reading: Reading, note: str = "") -> Document:
    """Return what was read, without what is packed in it, and with what is not in it: for the agents, and the user."""
    text, packed = unpack(clean_text(reading[0]))
    if notes := "; ".join(reading[1] + packed):
        text += f"\n\n[{clean_name(name)}: {notes}]"
    return Document(text, note="; ".join(filter(None, (note, notes and f"{name}: {notes}"))))


def _read_compressed(name: str, kind: str, data: bytes) -> Document:
    make, error = _COMPRESSED[kind]
    try:
        unpacker = make()
        content = unpacker.decompress(data, MAX_UNPACKED)
    except error as e:
        raise InputError(f"{name} is a damaged {kind} file: {e}", "copy or download it again") from e
    if not unpacker.eof:
        if len(content) >= MAX_UNPACKED:
            raise InputError(f"{name} unpacks to more than {MAX_UNPACKED:,} bytes", "ask about a part of it")
        raise InputError(f"{name} is cut off: the end of the {kind} file is missing", "copy or download it again")
    inner = name[: -len(kind)] if name.lower().endswith(kind) else name
    if _detect_kind(inner, content) in (*_COMPRESSED, *_REFUSED):
        raise InputError(f"{name} is an archive or a compressed file that cannot be read", _UNPACK)
    return read_document(inner, content)


def _make_picture(name: str, media_type: str, data: bytes) -> Document:
    if not has_end(media_type, data):
        raise InputError(f"{name} is cut off: the end of the picture is missing", "copy or download it again")
    note = f"{name} moves: models see one picture of it" if is_animated(media_type, data) else ""
    return Document(attachments=(make_attachment(name, media_type, data),), note=note)


def _find_pdf(data: bytes) -> bytes:
    """Return a PDF without what servers and mail programs put before and behind it."""
    end = data.rfind(b"%%EOF")
    return data[data.find(b"%PDF-") : None if end < 0 else end + 6]


def _read_pdf(name: str, data: bytes) -> Document:
    pages, notes = _read_pages(name, data)
    if not any(text for text, _ in pages):
        unread = f"{name}: {'; '.join(notes)}" * bool(notes)
        return Document(attachments=(make_attachment(name, PDF, data, len(pages)),), note=unread)
    scans = [str(number) for number, (text, has_content) in enumerate(pages, 1) if has_content and not text]
    texts = [
        text or (f"[page {number} has no text: a scan or a drawing, which is not shown]" if has_content else "")
        for number, (text, has_content) in enumerate(pages, 1)
    ]
    numbers = ", ".join(scans[:_SHOWN_PAGES]) + (", ..." if len(scans) > _SHOWN_PAGES else "")
    which = f"page {numbers} has" if len(scans) == 1 else f"pages {numbers} have"
    note = f"{name}: {which} no text (a scan?) and cannot be read this way; to show the PDF as it looks: -i {name}"
    return _make_document(name, ("\n\n".join(filter(None, texts)), notes), note * bool(scans))


def _read_pages(name: str, data: bytes) -> tuple[list[tuple[str, bool]], list[str]]:
    """Return the text of each page, whether there is anything on it, and what is not read. Raises InputError."""
    with _open_pdf(name, data) as reader:
        pages, unpacked = list[tuple[str, bool]](), 0
        tables: Any = None
        with suppress(*_DAMAGE, RuntimeError, ImportError):
            tables = import_module("pdf_oxide").PdfDocument.from_bytes(data)
        for number, page in enumerate(reader.pages):
            contents = page.get_contents()
            content = b"" if contents is None else contents.get_data()
            unpacked += len(content)
            if unpacked > _MAX_CONTENT:
                raise InputError(f"{name} unpacks to more than {_MAX_CONTENT:,} bytes of drawing", _ASK_PART)
            text = _read_pdf_page(page, number, tables) if content.strip() else ""
            pages.append((text, bool(content.strip())))
        values, notes = _read_xfa(reader, "".join(text for text, _ in pages))
        pages += [(values, True)] * bool(values)
        return pages, notes + [f"attached file, not read: {inner}" for inner in reader.attachments]


def _read_pdf_page(page: Any, number: int, tables: Any) -> str:
    """Return the text of a page: as pdf_oxide reads it, with its tables, if that has all letters that pypdf reads."""
    text = page.extract_text().strip()
    better, unseen = "", list[str]()
    with suppress(*_DAMAGE, RuntimeError):
        better = tables.to_markdown(number).strip()
        unseen = [] if "/Shading" in page.get("/Resources", {}) else _list_unseen(tables, number)
    forms = [unicodedata.normalize("NFKC", form).casefold() for form in (text, better)]
    letters, others = (Counter(filter(str.isalnum, form)) for form in forms)
    text = text if letters - others else better
    for passage in unseen:
        text = text.replace(passage, f"[hidden, the colour of its ground: {passage}]", 1)
    return "\n\n".join(filter(None, (text, *_list_fields(page, text))))


def _list_unseen(tables: Any, number: int) -> list[str]:
    """Return the passages of a page that have the colour of what lies under them: of a shape, else of white paper."""
    shapes = [(path["bbox"], path["fill_color"]) for path in tables.extract_paths(number) if path["fill_color"]]
    shapes += [(picture["bbox"], None) for picture in tables.page_images(number)]
    passages = list[str]()
    for span in tables.extract_spans(number):
        x, y = (span.bbox[axis] + span.bbox[axis + 2] / 2 for axis in (0, 1))
        under = [colour for box, colour in shapes if 0 <= x - box[0] <= box[2] and 0 <= y - box[1] <= box[3]]
        passages += [span.text.strip()] * (span.color == (under or [(1, 1, 1)])[-1])
    return list(filter(None, passages))


def _list_fields(page: Any, text: str) -> Iterator[str]:
    """Yield the values of a form, comments that a text does not have, and a count of pictures."""
    for entry in page.get("/Annots", ()):
        note = entry.get_object()
        field: Any = {**note.get("/Parent", {}), **note}
        value, content = field.get("/V"), str(field.get("/Contents", "")).strip()
        if field.get("/FT") == "/Btn" and "/AS" in field:
            value = "☐" if field["/AS"] == "/Off" else f"☒ {field['/AS'][1:]}"
        is_secret = int(field.get("/F", 0)) & 2 or int(field.get("/Ff", 0)) & 0x2000
        if field.get("/Subtype") == "/Widget" and value not in (None, "") and not is_secret:
            yield f"[field {field.get('/T', '')}: {value}]"
        elif field.get("/Subtype") not in ("/Widget", "/Popup", "/Link") and content not in text and not is_secret:
            yield f"[comment{f' by {author}' if (author := field.get('/T')) else ''}: {content}]"
    objects: Any = page.get("/Resources", {}).get("/XObject", {})
    if text and (count := sum(objects[name].get("/Subtype") == "/Image" for name in objects)):
        yield f"[{count} picture{'s' * (count > 1)}, not shown]"


def _read_xfa(reader: Any, text: str) -> Reading:
    """Return the values of an XFA form that the text of the pages lacks, and a note if no page shows the form."""
    if "/XFA" not in reader.root_object.get("/AcroForm", {}):
        return "", []
    lines = list[str]()
    with suppress(ImportError):
        for leaf in parse(reader.xfa.get("datasets", b"")).xpath(_XFA_VALUES):
            name, value = leaf.xpath("concat(local-name(..), '.', local-name())"), f": {leaf.text.strip()}]"
            lines += [f"[field {name}{value}"] * (value not in text)
    note = "an XFA form: its values are read, not its labels" if lines else "not read: an XFA form"
    return "\n\n".join(lines), [note] * (not any("/Annots" in page for page in reader.pages))


@contextmanager
def _open_pdf(name: str, data: bytes) -> Generator[Any]:
    """Open a PDF. Raises InputError: also when the block cannot read it, or it has too many pages."""
    from pypdf import PasswordType, PdfReader, apply_configuration
    from pypdf.errors import DependencyError, LimitReachedError, PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs what it mends; what it cannot read is raised
    try:
        # Nodes of the tree of pages count as well; each has two children, where a program made it.
        with apply_configuration(page_tree_maximum_entries=2 * _MAX_PAGES, zlib_maximum_output_length=_MAX_CONTENT):
            reader = PdfReader(BytesIO(data))
            if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
                hint = "save a copy without a password, for example with qpdf --decrypt"
                raise InputError(f"{name} is a PDF encrypted with a password", hint)
            try:
                count = len(reader.pages)
            except LimitReachedError:
                count = _MAX_PAGES + 1
            if count > _MAX_PAGES:
                raise InputError(f"{name} has more than {_MAX_PAGES:,} pages", _ASK_PART)
            yield reader
    except LimitReachedError as e:
        raise InputError(f"{name} unpacks to too much: {e}", _ASK_PART) from e
    except DependencyError as e:
        raise InputError(
            f"{name} is an encrypted PDF, and to read it a package is missing", "pip install 'massmem[documents]'"
        ) from e
    except (PyPdfError, *_DAMAGE) as e:
        raise InputError(f"{name} is a damaged PDF: {e}", "open it in a viewer and save it as a new PDF") from e


# What a file is, by its bytes, and what to do with one that cannot be read

_TO_PNG = "save it as PNG or JPEG"
_UNPACK = "unpack it, and name the files in it that matter"
_WRITTEN = "give what is said in it as text"

_REFUSED: dict[str, tuple[str, str]] = {  # suffix -> what such a file is, and what to do instead
    ".doc": ("a document of Word 97 to 2003", "save it as .docx or PDF"),
    ".ppt": ("a presentation of PowerPoint 97 to 2003", "save it as .pptx or PDF"),
    ".msg": ("a message of Outlook", "save it as text"),
    ".odg": ("a drawing of OpenDocument", "save it as PDF or PNG"),
    ".pages": ("a document of Pages", "export it as PDF or .docx"),
    ".numbers": ("a spreadsheet of Numbers", "export it as .xlsx or CSV"),
    ".key": ("a presentation of Keynote", "export it as PDF or .pptx"),
    **{suffix: (what, _TO_PNG) for suffix, what in (
        (".bmp", "a BMP picture"), (".tif", "a TIFF picture"), (".tiff", "a TIFF picture"), (".heic", "a HEIC picture"),
        (".heif", "a HEIF picture"), (".avif", "an AVIF picture"), (".jxl", "a JPEG XL picture"),
        (".jp2", "a JPEG 2000 picture"), (".ico", "an icon"), (".psd", "a picture of Photoshop"))},
    **{f".{kind.lower()}": (f"a {kind} archive", _UNPACK) for kind in ("ZIP", "tar", "7z", "RAR")},
    ".zst": ("compressed with zstd", "unpack it first: unzstd FILE"),
    **dict.fromkeys((".mp3", ".m4a", ".wav", ".ogg", ".flac"), ("a sound recording", _WRITTEN)),
    **dict.fromkeys((".mp4", ".mov", ".mkv", ".webm"), ("a film", f"{_WRITTEN}, or single pictures of it")),
    ".sqlite": ("an SQLite database", "write what matters of it to a file of text or CSV"),
    ".parquet": ("a Parquet table", "write what matters of it to a file of text or CSV"),
    ".exe": ("a program", "give its source"),
    ".mobi": ("a book for Kindle", "convert it to EPUB"),
}  # fmt: skip

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
_TEXT_OR = (".bmp", ".exe", ".mp3", ".bz2")  # kinds whose beginning may be that of a text: `BM`, `MZ`, `ID3`, `BZh`

_BRANDS = {b"heic": ".heic", b"heix": ".heic", b"hevc": ".heic", b"mif1": ".heif", b"msf1": ".heif", b"avif": ".avif",
           b"M4A ": ".m4a", b"qt  ": ".mov"}  # fmt: skip
"""Of ISO's container of pictures and films; others are films."""
_STREAMS = (  # in the old container of Microsoft Office
    ("EncryptedPackage", ""), ("WordDocument", ".doc"), ("PowerPoint Document", ".ppt"),
    ("__properties_version", ".msg"), ("Workbook", ".xls"), ("Book", ".xls"),
)  # fmt: skip
_PARTS = (  # files of a ZIP archive that tell what it is
    ("word/document.xml", ".docx"), ("ppt/presentation.xml", ".pptx"), ("xl/workbook.xml", ".xlsx"),
    ("xl/workbook.bin", ".xlsb"), ("META-INF/container.xml", ".epub"), ("Index/Presentation.iwa", ".key"),
    ("Index/Slide.iwa", ".key"), ("Index/CalculationEngine.iwa", ".numbers"), ("Index/Document.iwa", ".pages"),
)  # fmt: skip
_MIME_TYPES = {"application/epub+zip": ".epub"} | {
    f"application/vnd.oasis.opendocument.{name}": suffix
    for name, suffix in (("text", ".odt"), ("spreadsheet", ".ods"), ("presentation", ".odp"), ("graphics", ".odg"))
}


def _detect_kind(name: str, data: bytes) -> str:
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
    suffix = _get_suffix(name)
    if suffix in (".eml", ".mht", ".mhtml", ".mbox") or (not kind and MAIL.match(data)):
        return ".eml"
    return kind or (suffix if suffix in (*PAGES, ".ipynb") else "")


def _require_readable(name: str, kind: str) -> None:
    if kind in _REFUSED:
        what, hint = _REFUSED[kind]
        raise InputError(f"{name} is {what}, which cannot be read", hint)


def _get_suffix(name: str) -> str:
    """Return the suffix of a file's name, in lower case and with its dot; "" for none."""
    suffix = re.search(r"[^/\\](\.[A-Za-z0-9]{1,8})$", name)
    return suffix[1].lower() if suffix else ""


DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError)
"""What a damaged archive raises."""


@contextmanager
def explain_damage(name: str) -> Generator[None]:
    """Raise InputError when the block cannot read a ZIP archive, or a package for it is missing."""
    try:
        yield
    except ImportError as e:
        raise InputError(f"to read {name}, a package is missing", "pip install 'massmem[documents]'") from e
    except RecursionError:  # a RuntimeError, too
        raise
    except NotImplementedError as e:  # Deflate64, with which Windows packs large archives
        raise InputError(f"{name} is packed in a way that cannot be read", "unpack it, and give what is in it") from e
    except RuntimeError as e:
        raise InputError(f"{name} is encrypted", "unpack it with its password, and give what is in it") from e
    except (*DAMAGE, OSError) as e:
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
    suffix = _get_suffix(name)
    return suffix if suffix in (".doc", ".xls", ".ppt", ".msg") else ".doc"


PAGES = (".html", ".htm", ".xhtml")
DOCUMENTS = (".docx", ".pptx", ".odt", ".odp", ".epub", ".rtf")
SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")

MAX_PICTURES = 20  # that are shown of one notebook; the others are named

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def read_notebook(name: str, data: bytes) -> tuple[str, tuple[Attachment, ...]]:
    """Return the text of a notebook, which names its pictures, and the pictures, `optional`.

    A file that is no notebook is returned as the text that it is.

    Raises InputError: it is no text.
    """
    text, _ = decode_text(name, data)
    try:
        notebook: Any = json.loads(text)
        cells = cast("list[Mapping[str, Any]]", notebook["cells"])
        metadata = notebook.get("metadata", {})
        reader = _NotebookReader(clean_name(name), str(metadata.get("kernelspec", {}).get("language", "python")))
        parts = [part for number, cell in enumerate(cells, 1) for part in reader.read_cell(number, cell)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return text, ()
    return clean_text("\n\n".join(part for part in parts if part.strip())), tuple(reader.pictures)


@dataclass(slots=True)
class _NotebookReader:
    name: str
    language: str
    pictures: list[Attachment] = field(default_factory=list[Attachment])

    def read_cell(self, number: int, cell: Mapping[str, Any]) -> Iterator[str]:
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

    def _read_data(self, number: int, data: Mapping[str, Any]) -> Iterator[str]:
        """Yield what an output says: its plainest text, and a line for its picture."""
        pictures = [kind for kind in data if kind.startswith("image/")]
        texts = [kind for kind in ("text/markdown", "text/plain", "text/html", "application/json") if kind in data]
        if pictures:
            yield self._read_picture(number, pictures[0], _join(data[pictures[0]]))
        elif texts:
            value = data[texts[0]]
            yield _fence(_join(value) if isinstance(value, str | list) else json.dumps(value, ensure_ascii=False))

    def _read_picture(self, number: int, media_type: str, encoded: str) -> str:
        data = b""
        with suppress(ValueError):
            data = b64decode(encoded)
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
