"""What an agent gets of a file: its text, or the file itself."""

from collections.abc import Callable

import pytest

from massmem.core.attachments import Attachment
from massmem.core.errors import InputError
from massmem.tools.documents import read_document, read_picture
from tests.support.pictures import PNG, encrypt_pdf, make_pdf

REPORT = make_pdf("Sales rose by 12 percent.", "Costs fell.")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        (b"", ""),
        ("Größe".encode(), "Größe"),
        ("\ufeffmarked".encode(), "marked"),
        ("Größe".encode("utf-16"), "Größe"),
        (REPORT, "Sales rose by 12 percent.\n\nCosts fell."),
        (encrypt_pdf(REPORT, ""), "Sales rose by 12 percent.\n\nCosts fell."),
    ],
    ids=["ascii", "empty", "utf-8", "utf-8 with a mark", "utf-16", "pdf", "pdf that opens without a password"],
)
def test_text_of_a_file_is_read(data: bytes, text: str):
    assert read_document("file", data) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x01\x02", "is not a text file"),
        (b"\xff\xfe\xfd", "is not a text file"),
        ("Größe".encode("latin-1"), "is not a text file"),
        (b"MZ\x90\x00\x03", "is not a text file"),
        (b"%PDF-1.7\n", "is a damaged PDF"),
        (REPORT[:300], "is a damaged PDF"),
        (encrypt_pdf(REPORT, "secret"), "is an encrypted PDF"),
    ],
    ids=["binary", "broken utf-16", "latin-1", "program", "pdf without anything", "half a pdf", "encrypted pdf"],
)
def test_read_document_refuses_a_file_without_text(data: bytes, message: str, caplog: pytest.LogCaptureFixture):
    with pytest.raises(InputError, match=f"x.bin {message}") as caught:
        read_document("x.bin", data)
    assert caught.value.hint
    assert not caplog.records


def test_picture_and_pdf_without_text_are_seen():
    picture, scan = read_document("plan.png", PNG), read_document("scan.pdf", make_pdf("", ""))
    assert isinstance(picture, Attachment)
    assert (picture.file.media_type, picture.data, picture.file.pages) == ("image/png", PNG, 1)
    assert isinstance(scan, Attachment)
    assert (scan.file.media_type, scan.file.pages) == ("application/pdf", 2)


def test_pdf_can_be_seen_as_it_looks():
    assert read_picture("report.pdf", REPORT).file.pages == 2


@pytest.mark.parametrize("data", [b"plain text", b"BM6\x00", b""], ids=["text", "bitmap", "empty"])
def test_image_that_is_none_is_refused(data: bytes):
    with pytest.raises(InputError, match=r"plan\.png is no picture that models can see"):
        read_picture("plan.png", data)


def test_encrypted_pdf_is_no_picture():
    with pytest.raises(InputError, match="encrypted"):
        read_picture("report.pdf", encrypt_pdf(REPORT, "secret"))


@pytest.mark.parametrize("read", [read_document, read_picture])
def test_picture_that_is_cut_off_is_refused(read: Callable[[str, bytes], object]):
    with pytest.raises(InputError, match=r"plan\.png is cut off"):
        read("plan.png", PNG[:-16])
