"""What a person sees in a file, the agents get; what they cannot get is named: real files, each with one trait."""

import datetime
import io
import zipfile
from base64 import b64encode
from collections.abc import Callable
from email.message import EmailMessage
from importlib import import_module
from random import Random
from typing import Any

import pytest

from massmem.tools.documents import read_document
from tests.support.pictures import PNG

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
DRAWING = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
CHART = 'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"'
WATERMARK = '<w:p><w:r><w:pict><v:shape xmlns:v="v"><v:textpath string="COPY"/></v:shape></w:pict></w:r></w:p>'
DIAGRAM = f"<d {DRAWING}><a:p><a:t>Plan</a:t></a:p><a:p><a:t>Build</a:t></a:p></d>"
SALES = (
    f"<c:c {CHART} {DRAWING}><c:title><a:p><a:t>Sales</a:t></a:p></c:title><c:ser><c:tx><c:v>East</c:v></c:tx>"
    "<c:cat><c:v>May</c:v></c:cat><c:val><c:v>41.5</c:v></c:val></c:ser></c:c>"
)
NOISE = Random(1).randbytes(90_000)
CODE = b64encode(NOISE).decode()


def add_parts(data: bytes, parts: dict[str, str], body: str = "") -> bytes:
    """Return an Office file with more parts, and more at the end of a Word body."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in (name for name in old.namelist() if name not in parts):
            content = old.read(name)
            new.writestr(name, content.replace(b"<w:sectPr", body.encode() + b"<w:sectPr", 1) if body else content)
        for name, content in parts.items():
            new.writestr(name, content)
    return out.getvalue()


def wrap(code: str, indent: str = "") -> str:
    return f"\n{indent}".join(code[start : start + 64] for start in range(0, len(code), 64))


def save(thing: Any) -> bytes:
    out = io.BytesIO()
    thing.save(out)
    return out.getvalue()


def make_word(fill: Callable[[Any], object] = lambda _: None, body: str = "", **parts: str) -> bytes:
    document = import_module("docx").Document()
    document.add_paragraph("Seen.")
    fill(document)
    return add_parts(save(document), {f"word/{name.replace('_', '/')}.xml": part for name, part in parts.items()}, body)


def make_slides(fill: Callable[[Any], object], **parts: str) -> bytes:
    deck = import_module("pptx").Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Seen."
    fill(slide)
    return add_parts(save(deck), {f"ppt/{name.replace('_', '/')}.xml": part for name, part in parts.items()})


def make_book(fill: Callable[[Any, Any], object]) -> bytes:
    out = io.BytesIO()
    book = import_module("xlsxwriter").Workbook(out, {"in_memory": True})
    sheet = book.add_worksheet("First")
    sheet.write(0, 0, "Seen.")
    fill(book, sheet)
    book.close()
    return out.getvalue()


def make_pdf(draw: Callable[[Any], object]) -> bytes:
    out = io.BytesIO()
    page = import_module("reportlab.pdfgen.canvas").Canvas(out)
    page.drawString(60, 780, "Seen.")
    draw(page)
    page.save()
    return out.getvalue()


def read(name: str, data: bytes | str) -> str:
    return read_document(name, data.encode() if isinstance(data, str) else data).text


def set_header(document: Any) -> None:
    section = document.sections[0]
    section.different_first_page_header_footer = True
    section.first_page_header.paragraphs[0].text, section.footer.paragraphs[0].text = "Draft alpha", "Until omega"


def add_comment(document: Any) -> None:
    document.add_comment(document.paragraphs[0].runs, text="Not agreed", author="Ada", initials="A")


def add_nested_table(document: Any) -> None:
    inner = document.add_table(1, 1).cell(0, 0).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "inner", "deep"


def add_picture(document: Any) -> None:
    document.add_picture(io.BytesIO(PNG))
    document.inline_shapes[0]._inline.docPr.set("descr", "Plan")


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (make_word(set_header), ["Header 1: Draft alpha", "Footer 1: Until omega"]),
        (make_word(add_comment), ["Comment: Ada: Not agreed"]),
        (make_word(add_nested_table), ["inner", "deep"]),
        (make_word(add_picture), ["[picture: Plan]"]),
        (make_word(body=WATERMARK), ["COPY"]),
        (make_word(diagrams_data1=DIAGRAM), ["Diagram 1: Plan", "Diagram 1: Build"]),
        (make_word(charts_chart1=SALES), ["Chart 1: Sales", "Chart 1: East, May, 41.5"]),
        (make_word(embeddings_table="x"), ["embedded file, not read: table.xml"]),
    ],
    ids=["header", "comment", "nested table", "picture", "watermark", "diagram", "chart", "embedded file"],
)
def test_parts_of_a_letter_are_read_or_named(data: bytes, texts: list[str]):
    text = read("letter.docx", data)
    assert "Seen." in text
    assert [missing_text for missing_text in texts if missing_text not in text] == []


def hide(document: Any) -> None:
    document.add_paragraph().add_run("secret").font.hidden = True
    style = document.styles.add_style("Internal", 1)
    style.font.hidden = True
    document.add_paragraph("concealed", style="Internal")
    white = import_module("docx.shared").RGBColor(255, 255, 255)
    document.add_paragraph().add_run("bright").font.color.rgb = white
    shaded = document.add_paragraph()
    shaded.add_run("banner").font.color.rgb = white
    properties = shaded._p.get_or_add_pPr()
    properties.append(import_module("docx.oxml").parse_xml(f'<w:shd {WORD} w:val="clear" w:fill="1F3864"/>'))


def test_hidden_text_of_a_letter_is_left_out_and_named():
    document = read_document("offer.docx", make_word(hide))
    assert not [word for word in ("secret", "concealed", "bright") if word in document.text]
    assert "banner" in document.text
    assert document.note == "offer.docx: hidden passages, left out or marked: 3"
    assert "hidden passages, left out or marked: 3" in document.text


def test_words_that_stand_in_the_text_as_often_are_not_repeated():
    assert read("x.docx", make_word(lambda document: document.add_paragraph("A link and Seen."))).count("Seen.") == 2


def test_notes_comments_and_hidden_slides_are_read():
    def fill(slide: Any) -> None:
        slide.notes_slide.notes_text_frame.text = "unaudited"
        slide._element.set("show", "0")
        slide.shapes.add_group_shape().shapes.add_textbox(0, 0, 9, 9).text_frame.text = "grouped"

    text = read("talk.pptx", make_slides(fill, comments_comment1="<l><cm><text>Wrong</text></cm></l>"))
    assert "[hidden slide] Seen." in text
    assert "Comment 1: Wrong" in text
    assert "unaudited" in text
    assert "grouped" in text
    assert "Click to" not in text


def test_comments_on_slides_have_their_place_and_author():
    deck = import_module("pptx").Presentation()
    for title in ("Shown last", "Shown first"):
        deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = title
    deck.slides._sldIdLst.append(deck.slides._sldIdLst[0])
    comment = (
        f'<l {DRAWING}><cm authorId="A"><deMkLst><spMk id="2"/></deMkLst><replyLst><reply authorId="B"><a:t>Why?</a:t>'
        "</reply></replyLst><a:p><a:t>Too</a:t></a:p><a:p><a:t>low</a:t></a:p></cm></l>"
    )
    authors = '<l><author id="A" name="Ada"/><author id="B" name="Bob"/></l>'
    links = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="x" Type="comments" Target="../comments/modernComment_1.xml"/></Relationships>'
    )
    parts = {"ppt/comments/modernComment_1.xml": comment, "ppt/authors.xml": authors}
    data = add_parts(save(deck), parts | {"ppt/slides/_rels/slide1.xml.rels": links})
    text = read("deck.pptx", data)
    assert "Comment on slide 2: Title 1: Ada: Too low" in text
    assert "Comment on slide 2: Bob: Why?" in text


@pytest.mark.parametrize(
    ("ground", "is_hidden"), [("", True), ("slide FFFFFF", True), ("slide 102030", False), ("shape 102030", False)]
)
def test_white_text_of_a_slide_is_marked_unless_it_has_a_ground(ground: str, is_hidden: bool):
    white = import_module("pptx.dml.color").RGBColor.from_string

    def fill(slide: Any) -> None:
        shape = slide.shapes.add_textbox(0, 0, 9, 9)
        shape.text_frame.text = "bright"
        shape.text_frame.paragraphs[0].runs[0].font.color.rgb = white("FFFFFF")
        if ground:
            paint = (slide.background if ground.startswith("slide") else shape).fill
            paint.solid()
            paint.fore_color.rgb = white(ground[-6:])

    assert ("[hidden, the colour of its ground: bright]" in read("deck.pptx", make_slides(fill))) is is_hidden


OPEN = " ".join(
    f'xmlns:{kind}="urn:oasis:names:tc:opendocument:xmlns:{kind}:1.0"' for kind in ("office", "text", "style", "table")
)


def test_margins_and_hidden_text_of_an_open_document_are_accounted_for():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        archive.writestr(
            "content.xml",
            f'<office:document-content {OPEN} xmlns:dc="d"><office:automatic-styles><style:style style:name="H">'
            '<style:text-properties text:display="none"/></style:style></office:automatic-styles><office:body>'
            "<office:text><text:p>Seen<office:annotation><dc:creator>Ada</dc:creator><text:p>Wrong</text:p></office:annotation>."
            '</text:p><text:p text:style-name="H">secret</text:p></office:text></office:body>'
            "</office:document-content>",
        )
        archive.writestr(
            "styles.xml",
            f"<office:document-styles {OPEN}><office:master-styles><style:master-page><style:header><text:p>Contract 17"
            "</text:p></style:header></style:master-page></office:master-styles></office:document-styles>",
        )
    document = read_document("letter.odt", out.getvalue())
    assert "[comment by Ada] Wrong" in document.text
    assert "Header or footer: Contract 17" in document.text
    assert "secret" not in document.text
    assert "hidden passages, left out or marked: 1" in document.note


def test_margins_and_comments_of_rich_text_are_named():
    document = read_document("x.rtf", rb"{\rtf1{\header\pard Top\par}Body{\*\annotation No}}")
    assert document.note == "x.rtf: annotations, not read; headers, not read"


def test_raised_digits_are_no_part_of_a_number():
    def fill(document: Any) -> None:
        document.add_paragraph("10").add_run("6").font.superscript = True

    assert "10^6" in read("letter.docx", make_word(fill))
    assert "10^6" in read("page.html", b"<p>10<sup>6</sup></p>")


def test_durations_and_capital_dates_of_a_book_are_shown():
    book = import_module("openpyxl").Workbook()
    for place, value, code in (
        ("A1", datetime.timedelta(hours=30), "[h]:mm"),
        ("A2", datetime.date(2026, 3, 5), "DD.MM.YYYY"),
    ):
        book.active[place] = value
        book.active[place].number_format = code
    book.active["A3"] = "=1+1"
    text = read("book.xlsx", save(book))
    assert [shown for shown in ("30:00", "05.03.2026", "=1+1") if shown not in text] == []


def test_cells_show_what_a_person_sees():
    formats = {
        '0.00 "£"': (19.5, "19.50 £"), "00000": (1067, "01067"), "0%": (0.07, "7%"), "0.0%": (0.0725, "7.3%"),
        "dd.mm.yyyy": (45356, "05.03.2024"), "#,##0;(#,##0)": (-1250, "(1,250)"), "h:mm": (0.5, "12:00"),
        '_-* #,##0.00 "€"_-;_-@_-': (1234.5, "1,234.50 €"), "General": (1 / 3, "0.333333333333333"),
    }  # fmt: skip

    def fill(book: Any, sheet: Any) -> None:
        for row, (code, (value, _)) in enumerate(formats.items(), 1):
            sheet.write(row, 0, value, book.add_format({"num_format": code}))
        sheet.write_formula(20, 0, "=1/0", None, "#DIV/0!")
        sheet.write_boolean(21, 0, True)

    lines = read("book.xlsx", make_book(fill)).splitlines()
    assert [shown for _, shown in formats.values() if f"| {shown} |" not in lines] == []
    assert "| #DIV/0! |" in lines
    assert "| TRUE |" in lines


def test_formula_without_a_value_is_shown():
    book = import_module("openpyxl").Workbook()
    for row in (["Hinge", 3, 2.5, "=B1*C1"], [datetime.date(2024, 3, 5)]):
        book.active.append(row)
    text = read("book.xlsx", save(book))
    assert "| Hinge | 3 | 2.5 | =B1*C1 |" in text
    assert "| 2024-03-05 |" in text


def test_comments_boxes_charts_and_hidden_parts_of_a_book():
    def fill(book: Any, sheet: Any) -> None:
        sheet.write_comment("A1", "provisional")
        sheet.insert_textbox(5, 5, "Only until May")
        chart = book.add_chart({"type": "column"})
        chart.add_series({"values": "=First!$A$2:$A$2"})
        chart.set_title({"name": "Costs"})
        sheet.insert_chart("D2", chart)
        sheet.set_header("&CState of June")
        sheet.write(1, 0, 4)
        sheet.write(2, 0, "secret")
        sheet.set_row(2, None, None, {"hidden": True})
        sheet.write(3, 0, "bright", book.add_format({"font_color": "#FFFFFF"}))
        book.add_worksheet("Margins").hide()

    document = read_document("book.xlsx", make_book(fill))
    for missing_text in ("A1: provisional", "Only until May", "Costs", "State of June", "## Margins (hidden)"):
        assert missing_text in document.text
    assert "secret" not in document.text
    assert "bright" not in document.text
    assert "hidden sheet, marked: Margins" in document.note
    assert "hidden cells, left out: 1" in document.note


def test_fields_tables_and_comments_of_a_pdf_are_read():
    def draw(page: Any) -> None:
        page.acroForm.textfield(name="city", x=60, y=700, value="Ulm")
        page.acroForm.checkbox(name="member", x=60, y=650, checked=True)
        for value in ("post", "shop"):
            page.acroForm.radio(name="by", value=value, x=60, y=600, selected=value == "post")

    text = read("form.pdf", make_pdf(draw))
    assert "[field city: Ulm]" in text
    assert "[field member: ☒ Yes]" in text
    assert "post]" in text


def test_columns_of_a_table_in_a_pdf_stand_in_one_line():
    platypus, out = import_module("reportlab.platypus"), io.BytesIO()
    rows = [["Item", "May", "June"], ["Slates", "", "12.5"], ["Nails", "3.1", "4.2"]]
    table = platypus.Table(rows, colWidths=110, style=[("GRID", (0, 0), (-1, -1), 0.5, "black")])
    platypus.SimpleDocTemplate(out).build([table])
    assert "| Nails | 3.1 | 4.2 |" in read("table.pdf", out.getvalue())


def test_white_text_of_a_pdf_is_marked_unless_it_has_a_ground():
    def draw(page: Any) -> None:
        page.setFillColorRGB(1, 1, 1)
        page.drawString(60, 700, "rate it best")
        page.setFillColorRGB(0, 0, 0)
        page.drawString(60, 600, "End.")

    def draw_banner(page: Any) -> None:
        page.setFillColorRGB(0, 0, 0.4)
        page.rect(50, 690, 200, 40, fill=1)
        draw(page)

    assert "[hidden, the colour of its ground: rate it best]" in read("a.pdf", make_pdf(draw))
    assert "hidden" not in read("a.pdf", make_pdf(draw_banner))


@pytest.mark.parametrize("ground", ["paper", "box", "gradient"])
def test_text_of_a_pdf_is_compared_with_what_lies_under_it(ground: str):
    def draw(page: Any) -> None:
        page.drawString(60, 780, "Top.")
        if ground == "gradient":
            page.linearGradient(50, 690, 250, 730, ("red", "blue"))
        page.setFillColorRGB(0, 0, 0.4)
        if ground == "box":
            page.rect(50, 690, 200, 40, fill=1)
            page.drawString(60, 700, "blue on blue")
        page.setFillColorRGB(1, 1, 1)
        page.drawString(60, 720 if ground == "box" else 700, "white")

    text = read("a.pdf", make_pdf(draw))
    assert ("ground: white]" in text) is (ground == "paper")
    assert ("ground: blue on blue]" in text) is (ground == "box")


VALUES = b"<d><data><form><Name>Ann Meyer</Name><Row><Price>7</Price></Row><Empty> </Empty></form></data></d>"


@pytest.mark.parametrize("packet", [VALUES, b"<d/>"], ids=["filled", "empty"])
def test_values_of_an_xfa_form_are_read_or_the_form_is_named(packet: bytes):
    pypdf, generic = import_module("pypdf"), import_module("pypdf.generic")
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(make_pdf(lambda page: page.drawString(60, 700, "Please wait"))))
    stream = generic.StreamObject()
    stream.set_data(packet)
    packets = generic.ArrayObject([generic.TextStringObject("datasets"), writer._add_object(stream)])
    form = generic.DictionaryObject({generic.NameObject("/XFA"): packets})
    writer._root_object[generic.NameObject("/AcroForm")] = form
    out = io.BytesIO()
    writer.write(out)
    document = read_document("form.pdf", out.getvalue())
    if packet == VALUES:
        assert "[field form.Name: Ann Meyer]\n\n[field Row.Price: 7]\n\n[form.pdf" in document.text
        assert document.note == "form.pdf: an XFA form: its values are read, not its labels"
    else:
        assert document.note == "form.pdf: not read: an XFA form"


def make_mail() -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "Jörg <j@example.org>", "Größe – 10 Stück"
    mail.set_content("Grüße aus Köln.\n", cte="base64")
    mail.add_attachment("part;count\nhinge;4\n", subtype="csv", filename="größe.csv")
    mail.add_attachment(NOISE, maintype="application", subtype="pdf", filename="plan.pdf")
    return mail


@pytest.mark.parametrize("name", ["order.eml", "order.txt"])
def test_mail_is_its_decoded_text_with_its_attachments_named(name: str):
    inner = make_mail()
    outer = EmailMessage()
    outer["From"], outer["Subject"] = "a@example.org", "Fwd"
    outer.set_content("See below.\n")
    outer.add_attachment(inner)
    document = read_document(name, bytes(outer))
    for missing_text in (
        "From: Jörg <j@example.org>",
        "Größe – 10 Stück",
        "Grüße aus Köln.",
        "--- größe.csv ---",
        "hinge;4",
    ):
        assert missing_text in document.text
    assert "[attached: plan.pdf, application/pdf, 90,000 bytes, not read]" in document.text
    assert "attachment, not read: plan.pdf" in document.note
    assert len(document.text) < 1_000


def make_mbox(count: int, text: str = "") -> bytes:
    mails = list[bytes]()
    for number in range(count):
        mail = EmailMessage()
        mail["Subject"] = f"Order {number}"
        mail.set_content(f"Body {number}.\n\nFrom Monday at 10:00\nNote: {text}\n")
        mail.add_attachment(b"\0" * 9, maintype="application", subtype="pdf", filename=f"{number}.pdf")
        mails.append(bytes(mail).replace(b"\nFrom ", b"\n>From "))
    return b"".join(b"From a@example.org Mon Jan  5 10:00:00 2026\n%s\n" % mail for mail in mails)


def test_each_mail_of_a_mailbox_is_read():
    document = read_document("all.mbox", make_mbox(3))
    for number in range(3):
        assert f"--- mail {number + 1} of 3 ---\n\nSubject: Order {number}\n\nBody {number}." in document.text
        assert f"[attached: {number}.pdf, application/pdf, 9 bytes, not read]" in document.text
    assert document.text.count("\nFrom Monday at 10:00\nNote:") == 3


def test_mails_that_are_too_many_are_named():
    document = read_document("all.mbox", make_mbox(30, "long " * 4_000))
    assert "Order 24" in document.text
    assert "Order 28" not in document.text
    assert "all.mbox: mails 26 to 30 of 30, not read; attachments, not read: 25" in document.note


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b'From: "', 'From: "'),
        (b"To: a@[", "To: a@["),
        (b"Cc: a:b:c;d", "Cc: a:b:c;d"),
        (b"From: J\xc3\xbcrg <j@example.org>", "From: Jürg <j@example.org>"),
        (b"Subject: =?utf-8?q?Gr=C3=B6=C3=9Fe?=", "Subject: Größe"),
        (b"Content-Type: multipart/mixed", "Body."),
    ],
)
def test_mail_with_a_damaged_header_is_read(header: bytes, text: str):
    mail = read("x.eml", b"MIME-Version: 1.0\r\n" + header + b"\r\n\r\nBody.\r\n")
    assert text in mail
    assert "Body." in mail


def test_the_form_of_a_mail_that_says_most_is_read():
    mail = EmailMessage()
    mail["Subject"] = "News"
    mail.set_content("Please see the page.\n")
    page = "<p>Please see the page. <b>Sale</b><style>p{}</style></p><p hidden>secret</p>"
    mail.add_alternative(page, subtype="html")
    document = read_document("news.eml", bytes(mail))
    assert document.text.count("Please") == 1
    assert "Sale" in document.text
    assert "secret" not in document.text
    assert document.note == "news.eml: hidden passages, left out: 1"


def test_page_that_a_browser_saved_is_read():
    mail = EmailMessage()
    mail["Snapshot-Content-Location"] = "https://example.org/"
    mail.set_content("<h1>Größe</h1>", subtype="html", cte="base64")
    mail.add_related(NOISE, "image", "png")
    assert "# Größe" in read("page.mhtml", bytes(mail))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.md", f"first\n\n![sales](data:image/png;base64,{CODE})\n\nlast\n"),
        ("card.vcf", f"FN:first\nPHOTO;ENCODING=b:{wrap(CODE, ' ')}\nN:last\n"),
        ("key.txt", f"first\n{wrap(CODE[:5_000])}\nlast\n"),
        ("logo.json", f'{{"first": "{CODE}", "last": 1}}'),
        ("dump.txt", f"first\n{wrap(NOISE.hex())}\nlast\n"),
    ],
    ids=["data URI", "photo", "certificate", "JSON", "hexadecimal"],
)
def test_packed_content_of_a_text_is_named_instead_of_sent(name: str, text: str):
    document = read_document(name, text.encode())
    assert "first" in document.text
    assert "last" in document.text
    assert "not shown" in document.note
    assert len(document.text) < 600


@pytest.mark.parametrize(
    "text",
    [
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n" * 20,
        "/home/ann/" + "a_long_path_of_some_program/" * 20,
        "1.5,2.5,3.5\n" * 20_000,
        "天气很好。" * 30_000,
        "ACGT" * 500,
    ],
    ids=["hashes", "path", "numbers", "Chinese", "genes"],
)
def test_other_texts_are_sent_as_they_are(text: str):
    assert read_document("x.txt", text.encode()).text == text


def test_quoted_printable_of_a_card_is_decoded():
    card = "BEGIN:VCARD\nFN;ENCODING=QUOTED-PRINTABLE;CHARSET=UTF-8:M=C3=BCller=\n Sohn\nEND:VCARD\n"
    assert "Müller Sohn" in read("card.vcf", card)


def test_fields_of_a_page_are_read_and_what_it_hides_is_not():
    page = (
        "<html><head><style>@media print{.p{display:none}} .off, #x { display : none }</style></head><body>"
        '<input value="Ulm"><input type="checkbox" checked><select><option>no<option selected>yes</select>'
        '<input type="hidden" value="token"><p class="p">printed</p><p class="off">secret</p><p id="x">secret</p>'
        '<p hidden>secret</p><p style="color:#fff;background:white">secret</p><dl><dt>term</dt><dd>what</dd></dl>'
        '<p style="color:#fff;background:navy">banner</p>'
    )
    document = read_document("page.html", page.encode())
    for missing_text in ("Ulm", "☒", "yes", "printed", "banner", "term\n"):
        assert missing_text in document.text
    assert not [word for word in ("secret", "token", ">no") if word in document.text]
    assert document.note == "page.html: hidden passages, left out: 5"
