"""Files as text, or as they look: the real programs read real files."""

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import zipfile
from base64 import b64encode
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from massmem.core.errors import InputError
from massmem.isolation import call_isolated
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
            make_drawing(b"BT /F 9 Tf (%s) Tj ET" % (b"word " * 500_000)),
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


SHEETS = {"Stock": [["Part", "Count"], ["Hinge | left", 42], ["Bolt", 17.5]], "Zweites Blatt": [["far"]], "None": []}
PAGE = (
    "<h1>Minutes of file_name</h1><p>The <b>roof</b> leaks.</p><table><tr><td>Item</td><td>Cost</td></tr>"
    "<tr><td>Slates</td><td>1840</td></tr></table><ol><li>first</li><li>second</li></ol>"
)


def make_document(kind: str) -> bytes:
    """Return a document of this kind that says what PAGE says."""
    match kind:
        case "html":
            return PAGE.encode()
        case "epub":
            container = "<container><rootfiles><rootfile full-path='o'/></rootfiles></container>"
            item = "<item id='p' href='p' media-type='application/xhtml+xml'/>"
            package = f"<package><manifest>{item}</manifest><spine><itemref idref='p'/></spine></package>"
            page = f"<html><body>{PAGE}</body></html>"
            return make_zip({"META-INF/container.xml": container.encode(), "o": package.encode(), "p": page.encode()})
        case "odt":
            names = {"office": "office", "text": "text", "table": "table"}
            spaces = " ".join(f'xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{n}:1.0"' for n in names)
            rows = "".join(
                "<table:table-row>"
                + "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in row)
                + "</table:table-row>"
                for row in (("Item", "Cost"), ("Slates", "1840"))
            )
            body = '<text:h text:outline-level="1">Minutes of file_name</text:h><text:p>The roof leaks.</text:p>'
            content = (
                f"<office:document-content {spaces}><office:body><office:text>{body}<table:table>{rows}</table:table>"
                "</office:text></office:body></office:document-content>"
            )
            mime_type = b"application/vnd.oasis.opendocument.text"
            return make_zip({"mimetype": mime_type, "content.xml": content.encode()})
        case _:
            document = import_module("docx").Document()
            document.add_heading("Minutes of file_name", 1)
            document.add_paragraph("The ").add_run("roof").bold = True
            document.paragraphs[-1].add_run(" leaks.")
            table = document.add_table(2, 2)
            for cell, text in zip(table._cells, ("Item", "Cost", "Slates", "1840"), strict=True):
                cell.text = text
            for text in ("first", "second"):
                document.add_paragraph(text, style="List Number")
            return save(document)


def save(document: Any) -> bytes:
    """Return the file of a document of python-docx or python-pptx."""
    content = io.BytesIO()
    document.save(content)
    return content.getvalue()


def make_spreadsheet(sheets: dict[str, list[list[Any]]]) -> bytes:
    """Return an .xlsx file, whose parts refer to each other by absolute paths as many programs write them."""
    names = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets, 1))
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    links = "".join(
        f'<Relationship Id="r{i}" Type="{office}/worksheet" Target="/xl/worksheets/sheet{i}.xml"/>'
        for i in range(1, len(sheets) + 1)
    )
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{names}</sheets></workbook>'
        )
        root = f'<Relationship Id="r" Type="{office}/officeDocument" Target="xl/workbook.xml"/>'
        archive.writestr("_rels/.rels", f'<Relationships xmlns="{package}">{root}</Relationships>')
        archive.writestr("xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{package}">{links}</Relationships>')
        for i, rows in enumerate(sheets.values(), 1):
            lines = "".join(f"<row>{''.join(map(_write_cell, row))}</row>" for row in rows)
            text = f'<worksheet xmlns="{main}"><sheetData>{lines}</sheetData></worksheet>'
            archive.writestr(f"xl/worksheets/sheet{i}.xml", text)
    return content.getvalue()


def _write_cell(value: Any) -> str:
    return f'<c t="inlineStr"><is><t>{value}</t></is></c>' if isinstance(value, str) else f"<c><v>{value}</v></c>"


@pytest.mark.parametrize("kind", ["docx", "odt", "epub", "html"])
def test_document_keeps_headings_and_tables(kind: str):
    text = read_document(f"minutes.{kind}", make_document(kind)).text
    assert "# Minutes of file_name\n" in text
    assert "The roof leaks." in text.replace("**", "")
    assert "| Item | Cost |" in text
    assert "| Slates | 1840 |" in text
    assert kind == "odt" or "1. first\n2. second" in text


def test_slides_come_in_their_order():
    deck = import_module("pptx").Presentation()
    for title, body in (("Third", "one"), ("First", "two")):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = title, body
    text = read_document("talk.pptx", save(deck)).text
    assert text.index("Third") < text.index("one") < text.index("First") < text.index("two")


def test_sheets_keep_their_names_and_cells():
    document = read_document("stock.xlsx", make_spreadsheet(SHEETS))
    assert document.text.startswith(
        "## Stock\n\n| Part | Count |\n| --- | --- |\n| Hinge \\| left | 42 |\n| Bolt | 17.5 |\n\n"
        "## Zweites Blatt\n\n| far |\n| --- |\n\n## None\n\n(empty)"
    )
    # openpyxl does not read a file that is as sparse as this one.
    assert "values alone are read" in document.note


def test_web_page_is_read_by_its_encoding_and_without_what_nobody_sees():
    page = (
        "<html><head><meta charset=iso-8859-1><style>p{}</style><script>evil()</script></head><body><h1>Größe</h1>"
        "<table><tr><th>a</th><th colspan=2>b</th></tr><tr><td rowspan=2>1</td><td>2</td>"
        "<td><ul><li>x</li><li>y</li></ul></td></tr><tr><td>3</td><td>4</td></tr></table>"
        '<p><img alt="A chart" src="data:image/png;base64,AAAA">here'
    )
    document = read_document("page.html", page.encode("latin-1"))
    assert document.text == (
        "# Größe\n\n| a | b |  |\n| --- | --- | --- |\n| 1 | 2 | • x<br>• y |\n|  | 3 | 4 |\n\n[picture: A chart] here"
    )


def test_kind_is_told_by_the_bytes_and_not_by_the_name():
    assert "Slates" in read_document("minutes.bin", make_document("docx")).text


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("cut.docx", make_document("docx")[:3000], "cut.docx is damaged"),
        ("odd.xlsx", make_spreadsheet(SHEETS).replace(b"PK\x01\x02", b"PK\x01\x03"), "odd.xlsx is damaged"),
    ],
)
def test_damaged_document_is_refused(name: str, data: bytes, message: str):
    with pytest.raises(InputError, match=message):
        read_document(name, data)


def test_entities_are_not_followed():
    source, content = zipfile.ZipFile(io.BytesIO(make_document("docx"))), io.BytesIO()
    with zipfile.ZipFile(content, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "word/document.xml":
                start = data.index(b"<w:document")
                entity = b'<!DOCTYPE x [<!ENTITY file SYSTEM "file:///etc/passwd">]>'
                data = data[:start] + entity + data[start:].replace(b"1840", b"&file;")
            target.writestr(name, data)
    try:
        text = read_document("x.docx", content.getvalue()).text
    except InputError:
        return
    assert "root:" not in text


def test_reading_that_takes_too_long_is_ended():
    rows = "<tr><td>" * 3_000_000
    with pytest.raises(InputError, match=r"bomb\.html (takes longer than 1 s|needs more than)"):
        call_isolated(read_document, "bomb.html", rows.encode(), what="bomb.html", seconds=1)


def test_sheet_that_fills_the_memory_is_refused():
    far = "".join(f'<row r="{r}"><c r="A{r}"><v>1</v></c><c r="XFD{r}"><v>1</v></c></row>' for r in range(1, 200_000))
    source, content = zipfile.ZipFile(io.BytesIO(make_spreadsheet(SHEETS))), io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            data = source.read(name)
            target.writestr(
                name, data.replace(b"</sheetData>", far.encode() + b"</sheetData>") if "sheet1" in name else data
            )
    with pytest.raises(InputError, match=r"bomb\.xlsx needs more than 1 GB of memory"):
        read_file_apart(File(read_document, "bomb.xlsx", content.getvalue()))


def test_missing_package_is_named():
    program = (
        "import sys; sys.modules |= dict.fromkeys(('anydoc', 'python_calamine', 'openpyxl'))\n"
        "from massmem.core.errors import InputError\n"
        "from massmem.tools.documents import read_document\n"
        "try: read_document(sys.argv[1], sys.stdin.buffer.read())\n"
        "except InputError as e: print(e.message, e.hint)"
    )
    for name, data in (("a.docx", make_document("docx")), ("b.xlsx", make_spreadsheet(SHEETS))):
        result = subprocess.run([sys.executable, "-c", program, name], input=data, capture_output=True, check=True)
        assert (
            result.stdout.decode().strip() == f"to read {name}, a package is missing pip install 'massmem[documents]'"
        )


def make_notebook(*cells: dict[str, Any]) -> bytes:
    """Return a notebook of these cells."""
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": list(cells)}).encode()


def show(data: dict[str, Any]) -> dict[str, Any]:
    """Return a cell of code with one output."""
    output = {"output_type": "display_data", "data": data}
    return {"cell_type": "code", "source": ["plot()\n", "print('```')"], "outputs": [output]}


def test_cells_and_what_they_printed_are_read_in_their_order():
    printed = [
        {"output_type": "stream", "text": ["3.4\n"]},
        {"output_type": "error", "traceback": ["\x1b[0;31mValueError\x1b[0m: no"]},
    ]
    document = read_document(
        "tides.ipynb",
        make_notebook(
            {"cell_type": "markdown", "source": ["# Tides\n", "Hourly."]},
            {"cell_type": "code", "source": "print(max(h))", "outputs": printed},
            show({"text/html": "<table>", "text/plain": ["   a\n0  1"]}),
        ),
    )
    assert document.text == (
        "# Tides\nHourly.\n\n```python\nprint(max(h))\n```\n\n```\n3.4\n```\n\n```\nValueError: no\n```\n\n"
        "````python\nplot()\nprint('```')\n````\n\n```\n   a\n0  1\n```"
    )
    assert document.attachments == ()


def test_pictures_are_shown_beside_the_text_that_names_them():
    damaged, whole = {"image/png": "AAAA"}, {"image/png": b64encode(PNG).decode(), "text/plain": "<Figure>"}
    document = read_document("tides.ipynb", make_notebook(show(whole), show(damaged)))
    (picture,) = document.attachments
    assert (picture.data, picture.optional, picture.file.name) == (PNG, True, "tides.ipynb picture 1")
    assert "[picture of cell 1: tides.ipynb picture 1]" in document.text
    assert "[picture of cell 2: image/png, not shown]" in document.text
    assert b64encode(PNG).decode()[:40] not in document.text


def test_file_that_is_no_notebook_is_read_as_text():
    assert read_document("odd.ipynb", b'{"cells": 3}').text == '{"cells": 3}'
