"""Office documents, books and web pages as text: the real programs read real files."""

import io
import subprocess
import zipfile
from typing import Any

import pytest

from massmem.core.errors import InputError
from massmem.isolation import call_isolated
from massmem.tools import converter
from massmem.tools.documents import File, read_document, read_file_apart

MARKDOWN = """# Minutes of file_name

The **roof** leaks[^1].

| Item | Cost |
|------|------|
| Slates | 1840 |

1. first
2. second

[^1]: Since May.
"""
SHEETS = {"Stock": [["Part", "Count"], ["Hinge | left", 42], ["Bolt", 17.5]], "Zweites Blatt": [["far"]], "None": []}


def make_document(kind: str, markdown: str = MARKDOWN) -> bytes:
    """Return a document of this kind, as Pandoc writes it."""
    program = str(converter._find_pandoc())  # pyright: ignore[reportPrivateUsage]
    command = [program, "--from=markdown", f"--to={kind}", "--standalone", "--metadata=title:Notes", "--output=-"]
    return subprocess.run(command, input=markdown.encode(), stdout=subprocess.PIPE, check=True).stdout


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
def test_document_keeps_headings_tables_lists_and_footnotes(kind: str):
    text = read_document(f"minutes.{kind}", make_document(kind)).text
    assert "# Minutes of file_name\n" in text
    assert "The roof leaks[^1]." in text
    assert "| Item | Cost |\n| --- | --- |\n| Slates | 1840 |" in text
    assert "1.  first\n2.  second" in text
    assert "[^1]: Since May." in text


def test_slides_come_in_their_order():
    text = read_document("talk.pptx", make_document("pptx", "# Third\n\none\n\n# First\n\ntwo\n")).text
    assert text.index("Third") < text.index("one") < text.index("First") < text.index("two")


def test_sheets_keep_their_names_and_cells():
    assert read_document("stock.xlsx", make_spreadsheet(SHEETS)).text == (
        "## Stock\n\n| Part | Count |\n| --- | --- |\n| Hinge \\| left | 42 |\n| Bolt | 17.5 |\n\n"
        "## Zweites Blatt\n\n| far |\n| --- |\n\n## None\n\n(empty)"
    )


def test_web_page_is_read_by_its_encoding_and_without_what_nobody_sees():
    page = (
        "<html><head><meta charset=iso-8859-1><style>p{}</style><script>evil()</script></head><body><h1>Größe</h1>"
        "<table><tr><th>a</th><th colspan=2>b</th></tr><tr><td rowspan=2>1</td><td>2</td>"
        "<td><ul><li>x</li><li>y</li></ul></td></tr><tr><td>3</td><td>4</td></tr></table>"
        '<p><img alt="A chart" src="data:image/png;base64,AAAA"><a href="data:text/html;base64,AAAA">here</a>'
    )
    document = read_document("page.html", page.encode("latin-1"))
    assert document.text == (
        "# Größe\n\n| a | b |  |\n| --- | --- | --- |\n| 1 | 2 | - x - y |\n|  | 3 | 4 |\n\n[picture: A chart]here"
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


def test_program_that_computes_too_long_is_ended():
    rows = "<tr><td>" * 3_000_000
    with pytest.raises(InputError, match=r"bomb\.html takes longer than 1 s"):
        call_isolated(converter.convert, "bomb.html", ".html", rows.encode(), what="bomb.html", seconds=1)


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


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    document = make_document("docx")
    monkeypatch.setattr(converter, "find_spec", lambda _name: None)
    monkeypatch.setattr(converter.shutil, "which", lambda _name: None)
    for name, data in (("a.docx", document), ("b.xlsx", make_spreadsheet(SHEETS))):
        with pytest.raises(
            InputError, match=f"to read {name[1:]} files such as {name}, a package is missing"
        ) as caught:
            read_document(name, data)
        assert caught.value.hint == "pip install 'massmem[documents]'"
    assert read_document("page.html", b"<p>raw").text == "<p>raw"
