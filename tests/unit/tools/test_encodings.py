"""Bytes of a text as text, in the encodings that people bring."""

import pytest

from massmem.core.errors import InputError
from massmem.tools.encodings import decode_text

LOG = b"10:02 started\n" * 40


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Die Größe der Tür: 30 €, für jährlich", "cp1252"),
        ("Name;Straße\r\nJürgen;Mühlweg 3\r\n", "latin-1"),
        ("L’été, j’ai créé « un café » à l’hôtel", "cp1252"),
        ("¿Qué pasó con el niño?", "cp1252"),
        ("As ações não são boas", "cp1252"),
        ("Service started\r\n", "utf-16-le"),
        ("Żółw idzie\nHello", "utf-16-be"),
        ("你好，世界\n这是", "utf-16-le"),
        ("Hallo Łódź", "utf-16"),
        ("Hallo Łódź", "utf-32"),
        ('<?xml version="1.0" encoding="ISO-8859-2"?><a>Żółw</a>', "iso-8859-2"),
        ("<html><meta charset=shift_jis><p>これ", "shift_jis"),
        ("# -*- coding: koi8-r -*-\nname = 'Привет'", "koi8-r"),
    ],
)
def test_text_in_another_encoding_is_read(text: str, encoding: str):
    assert decode_text("a.txt", text.encode(encoding))[0] == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Zażółć gęślą jaźń", "cp1250"),
        ("Příliš žluťoučký kůň", "cp1250"),
        ("Árvíztűrő tükörfúrógép", "cp1250"),
        ("Привет, мир! Это журнал.", "cp1251"),
        ("Die Größe der Tür, für jährlich", "cp850"),
        ("Die Größe der Tür, für jährlich", "mac_roman"),
        ("これはテストです。", "shift_jis"),
        ("你好，世界。这是日志。", "gbk"),
        ("Işık ağaç şöyle", "cp1254"),
    ],
)
def test_text_that_might_be_read_wrongly_is_refused_with_a_command(text: str, encoding: str):
    with pytest.raises(InputError, match="in an encoding that it does not name") as caught:
        decode_text("my notes.txt", text.encode(encoding))
    assert "iconv -f CP1250 -t UTF-8 'my notes.txt' > 'my notes.txt.utf8.txt'" in caught.value.hint


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (LOG + b"bad \xff here\n", "a.log: 1 byte is not UTF-8 and shown as � (line 41)"),
        ("größe\n".encode() * 40 + b"\xe4\n", "a.log: 1 byte is not UTF-8 and shown as � (line 41)"),
        (LOG + bytes(1_200) + LOG, "a.log: 1,200 NUL bytes are left out"),
        ("für".encode("cp1252"), "a.log is not UTF-8: it is read as Windows-1252"),
        ("für".encode(), ""),
    ],
)
def test_damage_is_kept_and_said(data: bytes, note: str):
    text, remark = decode_text("a.log", data)
    assert remark == note
    assert "\0" not in text


@pytest.mark.parametrize("data", [bytes(range(256)) * 9, b"\x7fELF\x02\x01\0\0" * 40, b"\0\1\2"])
def test_binary_is_no_text(data: bytes):
    with pytest.raises(InputError, match="is no text"):
        decode_text("a.bin", data)


def test_lines_that_end_as_on_old_macs_stay_lines():
    assert decode_text("a.csv", b"a,b\r0012,x\r")[0].splitlines() == ["a,b", "0012,x"]
