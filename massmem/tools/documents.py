"""What an agent gets of a file: its text, or the file itself where it has to be seen."""

import logging
from io import BytesIO

from massmem.core.attachments import PDF, Attachment, detect_media_type, has_end, make_attachment
from massmem.core.errors import InputError
from massmem.core.messages import clean_text

_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}

# pypdf raises its own errors and, for many a damaged file, whatever its code meets there.
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, OSError, AssertionError)


def read_document(name: str, data: bytes) -> str | Attachment:
    """Return the text of a text file or a PDF; a picture, and a PDF without text, as an attachment.

    Raises:
        InputError: it is neither text, PDF nor picture, the PDF is encrypted or damaged, or the picture cut off.
    """
    match detect_media_type(data):
        case None:
            return _decode(name, data)
        case "application/pdf":
            text, pages = _read_pdf(name, data)
            return text if text.strip() else make_attachment(name, PDF, data, pages)
        case media_type:
            return _make_picture(name, media_type, data)


def read_picture(name: str, data: bytes) -> Attachment:
    """Return a picture, or a PDF as it looks.

    Raises:
        InputError: it is neither, the PDF is encrypted or damaged, or the picture cut off.
    """
    match detect_media_type(data):
        case None:
            raise InputError(
                f"{name} is no picture that models can see", "give a PNG, JPEG, GIF or WebP file, or a PDF"
            )
        case "application/pdf":
            return make_attachment(name, PDF, data, _read_pdf(name, data)[1])
        case media_type:
            return _make_picture(name, media_type, data)


def _make_picture(name: str, media_type: str, data: bytes) -> Attachment:
    if not has_end(media_type, data):
        raise InputError(f"{name} is cut off: the end of the picture is missing", "copy or download it again")
    return make_attachment(name, media_type, data)


def _decode(name: str, data: bytes) -> str:
    encoding = next((e for mark, e in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as e:
        raise _not_text(name) from e
    if "\x00" in text:
        raise _not_text(name)
    return clean_text(text)


def _not_text(name: str) -> InputError:
    return InputError(
        f"{name} is not a text file in UTF-8, and neither a PDF nor a picture",
        "convert it first: text with iconv -t utf-8, other documents to PDF, other pictures to PNG",
    )


def _read_pdf(name: str, data: bytes) -> tuple[str, int]:
    """Return the text of a PDF and how many pages it has. Raises InputError: it is encrypted or damaged."""
    from pypdf import PasswordType, PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs what it mends; what it cannot read is raised
    try:
        reader = PdfReader(BytesIO(data))
        if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
            raise _encryption_error(name)
        pages = [page.extract_text() for page in reader.pages]
    except DependencyError as e:
        raise _encryption_error(name) from e
    except (PyPdfError, *_DAMAGE) as e:
        raise InputError(f"{name} is a damaged PDF: {e}", "open it in a viewer and save it as a new PDF") from e
    return clean_text("\n\n".join(filter(None, map(str.strip, pages)))), len(pages)


def _encryption_error(name: str) -> InputError:
    return InputError(f"{name} is an encrypted PDF", "save a copy without a password, for example with qpdf --decrypt")
