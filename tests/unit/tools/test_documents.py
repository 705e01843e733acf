"""What an agent gets of a file: its text, or the file itself."""

import bz2
import gzip
import io
import lzma
import subprocess
import sys
import zipfile
from collections.abc import Callable

import pytest

from massmem.core.errors import InputError
from massmem.tools.documents import File, add_document, read_document, read_file_apart, read_files, read_picture
from tests.support.pictures import PNG, encrypt_pdf, make_drawing, make_page_tree, make_pdf

REPORT = make_pdf("Sales rose by 12 percent.", "Costs fell.")
CONTAINER = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99)
"""How files of Office 97 begin, and encrypted ones of later programs."""


def make_zip(files: dict[str, bytes]) -> bytes:
    """Return a ZIP archive of these files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


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
    assert read_document("file", data).text == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x01\x02", "is no text"),
        (b"MZ\x90\x00\x03", "is a program"),
        (b"%PDF-1.7\n", "is a damaged PDF"),
        (REPORT[:300], "is a damaged PDF"),
        (encrypt_pdf(REPORT, "secret"), "is a PDF encrypted with a password"),
    ],
    ids=["binary", "program", "pdf without anything", "half a pdf", "encrypted pdf"],
)
def test_read_document_refuses_a_file_without_text(data: bytes, message: str, caplog: pytest.LogCaptureFixture):
    with pytest.raises(InputError, match=f"x.bin {message}") as caught:
        read_document("x.bin", data)
    assert caught.value.hint
    assert not caplog.records


def test_picture_and_pdf_without_text_are_seen():
    (picture,) = read_document("plan.png", PNG).attachments
    (scan,) = read_document("scan.pdf", make_pdf("", "")).attachments
    assert (picture.file.media_type, picture.data, picture.file.pages) == ("image/png", PNG, 1)
    assert (scan.file.media_type, scan.file.pages) == ("application/pdf", 2)


def test_pdf_can_be_seen_as_it_looks():
    assert read_picture("report.pdf", REPORT).attachments[0].file.pages == 2


def test_bytes_before_and_behind_a_pdf_are_skipped():
    data = b"\r\n\r\n" + REPORT + b"\r\n--boundary--\r\n" * 200
    assert "Costs fell." in read_document("bill.pdf", data).text
    assert read_picture("bill.pdf", data).attachments[0].data.startswith(b"%PDF-")
    assert read_document("notes.md", b"A header:\n%PDF-1.7 is one\n").text.startswith("A header")


def test_pages_without_text_are_named():
    document = read_document(
        "deed.pdf", make_pdf("First page.", "Second page.").replace(b"(Second page.)", b"(            )")
    )
    assert "pdf: page 2 has no text" in document.note
    assert "[page 2 has no text" in document.text


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_text_is_unpacked(suffix: str, pack: Callable[[bytes], bytes]):
    assert read_document(f"app.log{suffix}", pack(b"10:02 ERROR disk")).text == "10:02 ERROR disk"
    with pytest.raises(InputError, match=r"cut off|damaged"):
        read_document(f"app.log{suffix}", pack(b"10:02 ERROR disk")[:-9])


def test_compressed_text_does_not_fill_the_memory():
    with pytest.raises(InputError, match="unpacks to more than"):
        read_document("zeros.gz", gzip.compress(bytes(60_000_000), 1))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (make_zip({"notes.txt": b"hi"}), "a ZIP archive"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(40), "a 7z archive"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99) + "WordDocument".encode("utf-16-le"),
            "a document of Word 97 to 2003",
        ),
        (b"\0\0\0\x18ftypheic" + bytes(40), "a HEIC picture"),
        (b"BM\x9e\x01\0\0" + bytes(40), "a BMP picture"),
        (b"SQLite format 3\0" + bytes(80), "an SQLite database"),
    ],
    ids=["zip", "7z", "doc", "heic", "bmp", "sqlite"],
)
@pytest.mark.parametrize("read", [read_document, read_picture])
def test_unreadable_file_is_named(data: bytes, what: str, read: Callable[[str, bytes], object]):
    with pytest.raises(InputError, match=f"x is {what}, which cannot be read") as caught:
        read("x", data)
    assert caught.value.hint


def test_encrypted_office_document_is_refused_as_such():
    data = CONTAINER + "EncryptedPackage".encode("utf-16-le")
    with pytest.raises(InputError, match="encrypted with a password"):
        read_document("pay.xlsx", data)


def test_moving_picture_is_said():
    frame = b"\x21\xf9\x04\0\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\1D\0"
    gif = b"GIF89a\1\0\1\0\x80\0\0" + bytes(6) + frame * 2 + b";"
    assert "moves" in read_document("a.gif", gif).note
    with pytest.raises(InputError, match="cut off"):
        read_document("a.gif", gif[:-2])


def test_nothing_in_a_text_ends_its_frame():
    text = "# Steps\n```python\nx = 1\n--- other.md ---\n"
    question = add_document("Why?", "a.md", read_document("a.md", text.encode()))
    question = add_document(question, "b.md", read_document("b.md", b"two"))
    assert question.endswith("\n --- other.md ---\n```\n\n--- b.md ---\ntwo")


@pytest.mark.parametrize("data", [b"plain text", b""], ids=["text", "empty"])
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


@pytest.mark.parametrize("read", [read_document, read_picture])
@pytest.mark.parametrize(("levels", "children"), [(5, 9), (90, 2), (1, 20_000), (3, 30)])
def test_pdf_with_more_pages_than_anybody_reads_is_refused(
    read: Callable[[str, bytes], object], levels: int, children: int
):
    with pytest.raises(InputError, match=r"tree\.pdf has more than 5,000 pages"):
        read("tree.pdf", make_page_tree(levels, children))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.pdf", make_drawing(b"(a) Tj " * 8_000_000), r"a\.pdf unpacks to too much"),
        (
            "b.pdf",
            make_drawing(b"BT /F 9 Tf (%s) Tj ET" % (b"a" * 2_500_000)),
            r"b\.pdf: more than 2,000,000 characters",
        ),
        ("c.gz", gzip.compress(b"word " * 1_000_000), r"c\.gz: more than 2,000,000 characters"),
        ("d.ipynb", b"[" * 2_500_000, r"d\.ipynb: more than 2,000,000 characters"),
    ],
    ids=["drawing", "string", "compressed text", "notebook that is none"],
)
def test_small_file_that_becomes_large_is_refused(name: str, data: bytes, message: str):
    with pytest.raises(InputError, match=message) as caught:
        read_file_apart(File(read_document, name, data))
    assert caught.value.hint


async def test_files_of_a_question_have_one_limit_together():
    files = [File(read_document, f"{number}.txt", b"word " * 30_000) for number in range(14)]
    assert [document.text[:4] for document in await read_files(files[:13])] == ["word"] * 13
    with pytest.raises(InputError, match=r"0\.txt and 13 more: more than 2,000,000 characters"):
        await read_files(files)


def test_small_text_starts_no_process():
    program = (
        "import psutil; from massmem.tools.documents import File, read_document, read_file_apart as read;"
        "print(read(File(read_document, 'a.md', b'text')).text, len(psutil.Process().children()))"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "text 0\n"
    )
