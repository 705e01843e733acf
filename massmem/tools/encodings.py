"""Bytes of a text file as text: by its mark, by what it says of itself, else as UTF-8 or as Windows wrote it."""

import codecs
import re
import shlex
import unicodedata

from massmem.core.errors import InputError
from massmem.core.messages import clean_text

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(
    rb"\A\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})[\"']"
    rb"|<meta\b[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})"
    rb"|\A[ \t]*#[^\n]{0,80}?coding[:=][ \t]*([\w.-]{1,40})|\A@charset \"([\w.:-]{1,40})\"",
    re.IGNORECASE,
)
"""The encoding that XML, HTML, Python or CSS names at its beginning."""

_MAX_DAMAGE = 20
"""Bytes that are no UTF-8 in a text that is still read. More of them mean another encoding."""
_SHOWN_LINES = 5

# What Western texts have beyond ASCII. Others of Windows-1252 (š, ð, þ) are mostly letters of another encoding.
_WESTERN_LETTERS = "ÄÖÜäöüßÀÂÁÃÅÆÇÈÉÊËÌÍÎÏÑÒÓÔØÙÚÛŒàâáãåæçèéêëìíîïñòóôøùúûœªº"
_WESTERN_SIGNS = "€‚„…†‰‹‘’“”•–—™›\xa0¡¢£¥§©«\xad®°±²³´µ·¹»¼½¾¿×÷"
_WESTERN = frozenset(_WESTERN_LETTERS + _WESTERN_SIGNS)
_IN_WORDS = "’–—…·°\xa0\xad"
_SIGN_IN_WORD = re.compile(
    rf"[A-Za-z{_WESTERN_LETTERS}][{''.join(set(_WESTERN_SIGNS) - set(_IN_WORDS))}][a-z{_WESTERN_LETTERS}]"
)
_LETTERS_IN_A_ROW = re.compile(rf"[{_WESTERN_LETTERS}]{{3}}")


def decode_text(name: str, data: bytes) -> tuple[str, str]:
    """Return the text of a file, and what the user should know of how it was read ("" for nothing).

    Bytes that are no UTF-8 in a text that is become U+FFFD.

    Raises InputError: it is no text, or in an encoding that it does not name.
    """
    text, note = _decode(name, data)
    if _has_binary(text):
        raise InputError(f"{name} is no text", "give a text, a PDF or a picture; save other documents as one of these")
    return clean_text(text if "\n" in text else text.replace("\r", "\n")), note  # lines as old Macs end them


def _decode(name: str, data: bytes) -> tuple[str, str]:
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)
    if encoding is None and b"\0" in data:
        encoding = _guess_utf_16(data)
    if encoding:
        return data.decode(encoding, "replace"), ""
    if zeros := data.count(0):
        text, note = _decode(name, data.replace(b"\0", b""))
        return text, "; ".join(filter(None, (note, f"{name}: {zeros:,} NUL bytes are left out")))
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        pass
    declared = _DECLARED.search(data[:2_000])
    text = _try(data, next(filter(None, declared.groups())).decode()) if declared else ""
    return (text, "") if text else _decode_unnamed(name, data)


def _decode_unnamed(name: str, data: bytes) -> tuple[str, str]:
    """Return the text of bytes that are not UTF-8 throughout."""
    text = data.decode(errors="replace")
    has_utf_8 = any(char > "\x7f" and char != "�" for char in text)
    western = "" if has_utf_8 else _try(data, "cp1252")
    if western and _is_western(western):
        return western, f"{name} is not UTF-8: it is read as Windows-1252"
    damage = text.count("�")
    if damage <= min(_MAX_DAMAGE, max(1, len(data) // (100 if has_utf_8 else 1_000))):
        lines = [str(number) for number, line in enumerate(text.split("\n"), 1) if "�" in line]
        where = ", ".join(lines[:_SHOWN_LINES]) + (", ..." if len(lines) > _SHOWN_LINES else "")
        damaged = "1 byte is" if damage == 1 else f"{damage} bytes are"
        return text, f"{name}: {damaged} not UTF-8 and shown as � (line {where})"
    if _has_binary(text):
        return text, ""
    raise InputError(
        f"{name} is a text in an encoding that it does not name",
        "convert it with the encoding that it was written in, for example CP1250, CP1251, CP850, SHIFT_JIS or GB18030: "
        f"iconv -f CP1250 -t UTF-8 {shlex.quote(name)} > {shlex.quote(name + '.utf8.txt')}",
    )


def _try(data: bytes, encoding: str) -> str:
    """Return the text, "" when it is not in this encoding. What is called Latin-1 is mostly Windows-1252."""
    if encoding.lower() in ("iso-8859-1", "latin-1", "latin1", "iso_8859-1", "us-ascii", "ascii"):
        encoding = "cp1252"
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError):
        return ""


def _guess_utf_16(data: bytes) -> str | None:
    """Return the byte order of UTF-16 without a mark; None when the bytes are none."""
    for encoding, zeros in (("utf-16-le", data[1::2]), ("utf-16-be", data[::2])):
        if zeros.count(0) == data.count(0) and len(data) % 2 == 0:
            text = _try(data, encoding)
            # In which blocks of 512 characters they are: a text has few of them, random bytes many.
            blocks = {-1 if 0x3000 <= ord(char) < 0xD800 else ord(char) >> 9 for char in text}
            if text and not _has_binary(text) and len(blocks) < 8:
                return encoding
    return None


def _has_binary(text: str) -> bool:
    """Whether there are characters that no text has; terminals' colours (ESC) and page breaks are some that it has."""
    return any(char < " " and char not in "\t\n\r\f\v\b\a\x1a\x1b" for char in set(text)) or any(
        unicodedata.category(char) == "Cn" and ord(char) & 0xFFFE == 0xFFFE for char in set(text)
    )


def _is_western(text: str) -> bool:
    """Whether a text read as Windows-1252 is one: its letters are of Western languages, where words have them."""
    others = {char for char in text if char > "\x7f"}
    if not others <= _WESTERN | {"õ", "Õ"} or ("õ" in others and not others & {"ã", "ç"}):
        return False
    return not (_SIGN_IN_WORD.search(text) or _LETTERS_IN_A_ROW.search(text))
