"""Mails as text, and packed content in any text: unpacked, or named instead of sent."""

import email
import quopri
import re
from collections.abc import Iterator
from contextlib import suppress
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import MIMEPart
from email.policy import default
from functools import partial
from typing import Any

from massmem.core.errors import InputError
from massmem.tools.encodings import decode_text
from massmem.tools.office import Reading, read_html

_HEADER = rb"(?i)(?:From [^\n]*\n)?(?:[a-z][a-z0-9-]*:[^\n]*\n(?:[ \t][^\n]*\n)*){0,80}?"
MAIL = re.compile(_HEADER + rb"(?:MIME-Version|Content-Transfer-Encoding):")  # a mail, or a page that a browser saved
_PACKED = re.compile(
    r"(?P<uri>data:(?P<kind>[\w.+/-]*)(?:;[\w=.+-]+)*;base64,)?"
    r"(?P<code>(?:[A-Za-z0-9+/_-]{40,}+={0,2}(?:\\r)?(?:\\n)?(?:[ \t]*\r?\n[ \t>]*)?)++"
    r"(?:(?=[^\n]{0,80}[0-9+/=])[A-Za-z0-9+/_-]{1,80}={0,2}(?=\s|$))?)"
)
_LONG, _WORDLESS = 300, 100_000  # characters of a code, and of anything without a word, that are named instead of sent
_WORD = re.compile(r"(?<!\w)(?:[^\W\d_]{2,30}|\d{1,15}(?:[.,]\d+)*)(?!\w)|[^\W\d_a-zA-Z]")
_QUOTED = re.compile(
    r"(?im)^(?=[^\n:]*+:)([^\s:]*;ENCODING=QUOTED-PRINTABLE(?:;CHARSET=(?P<charset>[\w-]+))?[^\n:]*:)((?:[^\n]*=\r?\n)*[^\n]*)"
)

_MBOX = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From (?=[^\n]*\d\d:\d\d|[- \r]*\n)[^\n]*+\n(?=[\w-]{1,80}:)")
_MAX_MAILS, _MAX_TEXT, _MAX_NOTES = 300, 500_000, 20  # of a mailbox: mails, characters, notes on attachments


def read_mail(data: bytes) -> Reading:
    """Return the headers of a mail, its text, and its attachments: their text, or name and size. In a mbox, of each."""
    notes, parts = list[str](), list[str]()
    mails = _MBOX.split(data)[1:] if _MBOX.match(data) else [data]
    for number, mail in enumerate(mails, 1):
        if number > _MAX_MAILS or sum(map(len, parts)) > _MAX_TEXT:
            notes = [f"mails {number:,} to {len(mails):,} of {len(mails):,}, not read", *notes]
            break
        parts += [f"--- mail {number} of {len(mails)} ---"] * (len(mails) > 1)
        mail = re.sub(rb"(?m)^>(>*From )", rb"\1", mail) if len(mails) > 1 else mail
        parts += _read_message(email.message_from_bytes(mail, policy=default), notes)
    if len(notes) > _MAX_NOTES:
        others = [note for note in notes if not note.startswith("att")]
        notes = [*others, f"attachments, not read: {len(notes) - len(others)}"]
    return "\n\n".join(filter(None, map(str.strip, parts))), notes


def _read_message(mail: MIMEPart, notes: list[str]) -> Iterator[str]:
    names = ("From", "To", "Cc", "Bcc", "Reply-To", "Date", "Subject")
    fields = [(names.index(name.title()), value) for name, value in mail.raw_items() if name.title() in names]
    yield "\n".join(f"{names[place]}: {' '.join(_decode_header(value).split())}" for place, value in sorted(fields))
    yield from _read_part(mail, notes)


def _decode_header(raw: str) -> str:
    """Return what a header says: the parser of addresses raises, or drops what it does not know."""
    text = raw.encode("utf-8", "surrogateescape").decode(errors="replace")
    with suppress(LookupError, UnicodeError, MessageError):
        text = str(make_header(decode_header(text)))
    return text


def _read_part(part: MIMEPart, notes: list[str]) -> Iterator[str]:
    kind, name = part.get_content_type(), part.get_filename()
    children = list(part.iter_parts()) if part.is_multipart() else []
    data: Any = part.get_payload(decode=True) or b""
    if kind == "message/rfc822" and children:
        yield from ("--- forwarded message ---", *_read_message(children[0], notes))
    elif kind == "multipart/alternative" and children:
        texts = ["\n\n".join(_read_part(child, notes)) for child in children]
        words = [set(_WORD.findall(text.lower())) for text in texts]
        # The first form that has the words of all others.
        yield next((text for text, own in zip(texts, words, strict=True) if own >= set().union(*words)), texts[-1])
    elif children:
        for child in children:
            yield from _read_part(child, notes)
    elif part.get_content_maintype() in ("text", "multipart"):  # one without a boundary is its text
        try:
            text = data.decode(part.get_content_charset() or "utf-8")
        except (LookupError, UnicodeError):
            text, _ = decode_text("the mail", data)
        with suppress(ImportError, InputError, ValueError):
            text, unseen = read_html("the mail", text) if kind == "text/html" else (text, [])
            notes += unseen
        yield from (f"--- {name} ---" * bool(name), text)
    else:
        yield f"[attached: {name or 'without a name'}, {kind}, {len(data):,} bytes, not read]"
        notes.append(f"attachment, not read: {name or kind}")


def unpack(text: str) -> Reading:
    """Return a text in which packed content is unpacked or named."""
    notes = list[str]()
    text = _PACKED.sub(partial(_unpack_code, notes=notes), _QUOTED.sub(_decode_quoted, text))
    pieces = re.split(f"({_WORD.pattern})", text) if len(text) > _WORDLESS else [text]
    return "".join(_name("wordless text", len(p), notes) if len(p) > _WORDLESS else p for p in pieces), notes


def _name(what: str, length: int, notes: list[str]) -> str:
    notes.append(f"{what} of {length:,} characters is not shown")
    return f"[{what}, {length:,} characters, not shown]"


def _unpack_code(match: re.Match[str], notes: list[str]) -> str:
    code = match["code"]
    kinds = [sum(map(test, code)) for test in (str.isupper, str.islower, str.isdigit)]
    if not match["uri"] and (len(code) < _LONG or min(kinds) * 20 < len(code)):
        return match[0]  # a path, a long word, digits
    return _name(f"packed {match['kind'] or 'content'}", len(match[0]), notes) + code[len(code.rstrip()) :]


def _decode_quoted(match: re.Match[str]) -> str:
    charset = "cp1252" if (match["charset"] or "").lower().startswith(("iso", "win", "cp")) else "utf-8"
    return match[1] + quopri.decodestring(match[3].encode()).decode(charset, "replace")
