"""The content of a question in parts, as clients send it: texts, and pictures and files as data: URLs."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Sequence

from massmem.core.attachments import Attachment, add_text, clean_name
from massmem.core.errors import InputError
from massmem.core.messages import clean_text
from massmem.server.schemas import MAX_MESSAGE_LENGTH, ContentPart, FilePart, ImagePart, TextPart
from massmem.tools.documents import read_document, read_picture

_DATA_URL = re.compile(r"data:[^,]{0,200}?;base64,", re.IGNORECASE)


def read_content(parts: Sequence[ContentPart], most: int) -> tuple[str, tuple[Attachment, ...]]:
    """Return the text of a question, with the texts of its files, and what else it came with. May take seconds.

    most: bytes of one file, and of all pictures together.

    Raises:
        InputError: a part is not what it says, or the question has no text or is too large.
    """
    text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
    attachments: list[Attachment] = []
    pictures = 0
    for part in parts:
        match part:
            case TextPart():
                continue
            case ImagePart(image_url=image):
                pictures += 1
                name = f"picture {pictures}"
                document = read_picture(name, _decode(name, image.url, most))
            case FilePart(file=file):
                name = clean_name(file.filename)
                document = read_document(name, _decode(name, file.file_data, most))
        if isinstance(document, str):
            text = add_text(text, name, document)
        else:
            attachments.append(document)
    _check(text, attachments, most)
    return clean_text(text), tuple(attachments)


def _check(text: str, attachments: Sequence[Attachment], most: int) -> None:
    if not text.strip():
        raise InputError("the question has no text", "add a part of type text")
    if len(text) > MAX_MESSAGE_LENGTH:
        raise InputError(f"the question is longer than {MAX_MESSAGE_LENGTH:,} characters", "ask about a part of it")
    if sum(attachment.file.size for attachment in attachments) > most:
        raise InputError(f"the files are larger than {most:,} bytes together", "ask about fewer of them")


def _decode(name: str, url: str, most: int) -> bytes:
    beginning = _DATA_URL.match(url)
    if beginning is None:
        raise InputError(f"{name} is no data: URL", "send the file itself, as data:image/png;base64,...")
    encoded = url[beginning.end() :]
    if len(encoded) // 4 * 3 > most + 2:
        raise InputError(f"{name} is larger than {most:,} bytes", "send a smaller one")
    try:
        return b64decode(encoded, validate=True)
    except (NotBase64, ValueError) as e:
        raise InputError(f"{name} is not base64", "encode the bytes of the file as base64") from e
