"""Inputs that could keep a service from answering others: each is one request, made here and sent by the bench `deaf`.

A case names its kind before the colon. Texts, schemas and documents are small where they can be: what counts is the
work that they ask for.
"""

import base64
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

BEGIN, END = "<<<REPLY:", ":REPLY>>>"
"""The stub model replies with what stands between them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and how often it is sent at the same time."""

    name: str
    path: str
    make_body: Callable[[], bytes]
    times: int = 6
    """More than there are workers."""
    with_key: bool = True
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    right: Literal["any", "refused", "answered"] = "any"
    """refused: only a 4xx is right; answered: only a normal answer is right; any: either of them."""

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]


def make_cases() -> list[Case]:
    """Return all cases. Their bodies are made when they are sent: some have many megabytes."""
    return [*_schemas(), *_texts(), *_pdfs(), *_documents(), *_bodies(), *_imports(), *_searches(), *_mcp()]


# Schemas


def _schemas() -> Iterable[Case]:
    almost = "a" * 40 + "!"
    nested = {"type": "string", "pattern": "^(a+)+$|b$"}
    yield _schema("a pattern that backtracks", nested, almost + "b")
    yield _schema("a pattern with alternatives", {"type": "string", "pattern": "^(a|a)*$|b$"}, almost + "b")
    optional = {"type": "string", "pattern": "^(a?){40}a{40}$|b$"}
    yield _schema("a pattern with an optional tail", optional, "a" * 39 + "b")
    yield _schema("a pattern with a look-ahead", {"type": "string", "pattern": "^(?=(a+)+$)a"}, almost)
    named = {"type": "object", "patternProperties": {"^(a+)+$": {"type": "integer"}}}
    yield _schema("a pattern of names", named, {almost: 1})
    within = {"type": "object", "properties": {"list": {"type": "array", "items": {"anyOf": [{"not": nested}, {}]}}}}
    yield _schema("a pattern deep within", within, {"list": [almost]})
    yield _schema("a pattern, over /v1/responses", nested, almost + "b", "/v1/responses")
    yield _schema("a pattern of 100,000 characters", {"type": "string", "pattern": "(" * 50_000 + ")" * 50_000}, "a")
    yield _schema("a repetition of a repetition", {"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}, "a")
    yield _schema("$ref to itself", {"$ref": "#"}, {"a": 1}, right="refused")
    ring = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}
    yield _schema("$ref in a ring", ring, {"a": 1}, right="refused")
    doubling: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    yield _schema("$ref that doubles", {"$defs": {**doubling, "d30": {}}, "$ref": "#/$defs/d0"}, 1)
    tree = {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]}}
    yield _schema("$ref that branches with the reply", tree, _nest("[", '"x"', "]", 18))
    deep = json.loads(_nest('{"type": "array", "items": ', '{"type": "integer"}', "}", 900))
    yield _schema("900 arrays", deep, _nest("[", "1", "]", 900))
    yield _schema("nothing fits", {"allOf": [{"type": "integer"}, {"type": "string"}]}, 1, right="refused")
    yield _schema("no value at all", {"type": "object", "properties": {"a": False}, "required": ["a"]}, {"a": 1})
    distinct = {"type": "array", "uniqueItems": True}
    yield _schema("unique items", distinct, [{"n": number} for number in range(8_000)])


def _schema(name: str, schema: Any, reply: Any, path: str = "/v1/chat/completions", **more: Any) -> Case:
    """Return a question with the form of its answer. reply: a text is sent as it is when it is JSON already."""
    text = reply if isinstance(reply, str) and reply.startswith("[") else json.dumps(reply)
    asked = f"Reply word for word. {BEGIN}{text}{END}"
    form = {"type": "json_schema", "name": "answer", "schema": schema}
    if path == "/v1/responses":
        body = {"model": "massmem", "input": asked, "text": {"format": form}}
    else:
        wrapped = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        body = {"model": "massmem", "messages": [{"role": "user", "content": asked}], "response_format": wrapped}
    return Case(f"schema: {name}", path, lambda: json.dumps(body).encode(), **more)


# Texts


def _texts() -> Iterable[Case]:
    yield _text("100,000 blanks", "Is it" + " " * 100_000 + "so?")
    yield _text("100,000 wide blanks", "Is it" + "\u3000" * 100_000 + "so?")
    yield _text("100,000 no-break spaces", "Is it" + "\u00a0" * 100_000 + "so?")
    yield _text("100,000 tabs and blanks", "Is it" + " \t" * 50_000 + "so?")
    yield _text("100,000 line ends", "Is it" + "\n" * 100_000 + "so?")
    yield _text("200,000 dots", "What is it? " + "." * 200_000)
    yield _text("200,000 quotes", "What is it? " + "\"'" * 100_000)
    yield _text("100,000 brackets", "What is it? " + "[(" * 50_000)
    yield _text("100,000 fences", "What is it?\n" + "```\n" * 100_000)
    yield _text("100,000 bars", "What is it?\n" + "| " * 100_000 + "\n" + "|-" * 100_000)
    yield _text("100,000 headings", "What is it?\n" + "#" * 100_000)
    yield _text("900,000 letters", "What is it? " + "a" * 900_000)
    yield _text("900,000 digits", "What is it? " + "7" * 900_000)
    yield _text("300,000 different words", "What is it? " + " ".join(map(_spell, range(200_000)))[:900_000])
    yield _text("300,000 combining marks", "What is it? a" + "\u0301" * 300_000)
    yield _text("300,000 Chinese characters", "\u5929" * 300_000)
    yield _text("100,000 families", "What is it? " + "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 50_000)
    yield _text("my name is, 50,000 times", "My name is Ann and I live in Bern. " * 25_000)
    yield _text("100,000 tags", "What is it? " + "<think>" * 100_000)
    over_v1 = {"model": "massmem", "messages": [{"role": "user", "content": "Is it" + " " * 100_000 + "so?"}]}
    yield Case("text: 100,000 blanks, over /v1", "/v1/chat/completions", lambda: json.dumps(over_v1).encode())
    echo = f"Reply word for word. {BEGIN}{'So' + ' ' * 100_000 + 'it is'}{END}"
    yield _text("a reply of 100,000 blanks", echo)


def _text(name: str, text: str) -> Case:
    return Case(f"text: {name}", "/api/v1/chat", lambda: json.dumps({"message": text}).encode())


def _spell(number: int) -> str:
    """Return a word of its own for each number."""
    return "".join(chr(97 + int(digit)) for digit in f"{number:05}")


# Documents


def _pdfs() -> Iterable[Case]:
    yield _document("pdf: a tree of 59,049 pages", "a.pdf", lambda: _page_tree(5, 9), times=8)
    yield _document("pdf: a tree of 65,536 pages", "a.pdf", lambda: _page_tree(16, 2), times=8)
    yield _document("pdf: a tree in a ring", "a.pdf", _page_ring, times=8)
    yield _document("pdf: forms that double", "a.pdf", lambda: _pdf_of_forms(24))
    yield _document("pdf: 56 MB of text in 60 KB", "a.pdf", lambda: _one_page(b"BT /F 12 Tf " + b"(a) Tj " * 8_000_000))
    yield _document("pdf: 4 million operators", "a.pdf", lambda: _one_page(b"q Q " * 2_000_000))
    yield _document("pdf: 100,000 arrays in arrays", "a.pdf", lambda: _one_page(b"[" * 100_000 + b"] TJ"))
    yield _document("pdf: packed twice", "a.pdf", _packed_twice)


def _documents() -> Iterable[Case]:
    words = b"<w:p><w:r><w:t>word</w:t></w:r></w:p>"
    yield _document("document: Word, 200 MB of XML", "a.docx", lambda: _word(words * 5_000_000))
    yield _document("document: Word, 100,000 levels", "a.docx", lambda: _word(b"<w:p>" * 100_000 + b"</w:p>" * 100_000))
    yield _document("document: Word, a table of 300,000 cells", "a.docx", lambda: _word(_table(300_000)))
    yield _document("document: spreadsheet, a million cells", "a.xlsx", lambda: _sheet(1_000, 1_000))
    yield _document("document: notebook, 100,000 levels", "a.ipynb", lambda: _nest("[", "", "]", 100_000).encode())
    yield _document("document: web page, 100,000 levels", "a.html", lambda: b"<div>" * 100_000)
    yield _document("document: web page, 100,000 lists", "a.html", lambda: b"<ul><li>" * 100_000)
    yield _document("document: text, 9 MB without an end of line", "a.txt", lambda: b"a" * 9_000_000)
    yield _document("document: text, 9 MB of bytes of no encoding", "a.txt", lambda: bytes(range(128, 256)) * 70_000)
    yield _document("document: picture of 30,000 x 30,000", "a.png", lambda: _picture(30_000))
    yield _document("document: RTF, 100,000 groups", "a.rtf", lambda: b"{\\rtf1 " + b"{" * 100_000 + b"}" * 100_001)


def _document(name: str, file_name: str, make: Callable[[], bytes], times: int = 6) -> Case:
    def make_body() -> bytes:
        url = f"data:application/octet-stream;base64,{base64.b64encode(make()).decode()}"
        file = {"type": "file", "file": {"filename": file_name, "file_data": url}}
        return json.dumps({"message": [{"type": "text", "text": "What is in it?"}, file]}).encode()

    return Case(name, "/api/v1/chat", make_body, times)


_FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
_CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"


def _pdf(objects: Sequence[bytes]) -> bytes:
    """Return a PDF of these objects, the first of which is number 1 and the catalog."""
    out, offsets = io.BytesIO(), list[int]()
    out.write(b"%PDF-1.7\n")
    for number, content in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%b\nendobj\n" % (number, content))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table))
    return out.getvalue()


def _pack(content: bytes, entries: bytes = b"") -> bytes:
    packed = zlib.compress(content, 9)
    head = b"<< /Length %d /Filter /FlateDecode %b >>" % (len(packed), entries)
    return b"%b\nstream\n%b\nendstream" % (head, packed)


def _page(parent: int, content: int, font: int, resources: bytes = b"") -> bytes:
    fonts = b"/Font << /F %d 0 R >>" % font
    head = b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 200 200]" % parent
    return b"%b /Contents %d 0 R /Resources << %b %b >> >>" % (head, content, fonts, resources)


def _page_tree(depth: int, width: int) -> bytes:
    """Each node names the same child `width` times: width ** depth pages."""
    nodes = [
        b"<< /Type /Pages /Count %d /Kids [%b] >>" % (width ** (depth - level), b"%d 0 R " % (level + 3) * width)
        for level in range(depth)
    ]
    page = depth + 2
    text = _pack(b"BT /F 12 Tf 10 100 Td (A page.) Tj ET")
    return _pdf([_CATALOG, *nodes, _page(page - 1, page + 1, page + 2), text, _FONT])


def _page_ring() -> bytes:
    return _pdf([_CATALOG, b"<< /Type /Pages /Count 9 /Kids [3 0 R] >>", b"<< /Type /Pages /Count 9 /Kids [2 0 R] >>"])


def _one_page(content: bytes, resources: bytes = b"", forms: Iterable[bytes] = ()) -> bytes:
    """Return a PDF with one page. Numbers: 4 is the content, 5 the font, from 6 on come the forms."""
    pages = b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>"
    return _pdf([_CATALOG, pages, _page(2, 4, 5, resources), _pack(content), _FONT, *forms])


def _pdf_of_forms(depth: int) -> bytes:
    """Each form draws the next one twice: 2 ** depth words."""
    named = b"/XObject << /X %d 0 R >>"
    kind = b"/Type /XObject /Subtype /Form /BBox [0 0 200 200] /Resources << /Font << /F 5 0 R >> %b >>"
    forms = [_pack(b"/X Do /X Do", kind % (named % (7 + level))) for level in range(depth)]
    last = _pack(b"BT /F 12 Tf (a) Tj ET", kind % b"")
    return _one_page(b"/X Do /X Do", named % 6, [*forms, last])


def _packed_twice() -> bytes:
    packed = zlib.compress(zlib.compress(b"BT /F 12 Tf " + b"(a) Tj " * 20_000_000, 9), 9)
    content = b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%b\nendstream" % (len(packed), packed)
    pages = b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>"
    return _pdf([_CATALOG, pages, _page(2, 4, 5), content, _FONT])


def _zip(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


_TYPES = b'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">%b</Types>'
_RELATIONS = b'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">%b</Relationships>'
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def _office(main: str, content_type: str, files: Mapping[str, bytes]) -> bytes:
    part = f'<Override PartName="/{main}" ContentType="application/vnd.openxmlformats-officedocument.{content_type}"/>'
    root = f'<Relationship Id="r1" Type="{_OFFICE}/officeDocument" Target="{main}"/>'
    head = {"[Content_Types].xml": _TYPES % part.encode(), "_rels/.rels": _RELATIONS % root.encode()}
    return _zip({**head, **files})


def _word(body: bytes) -> bytes:
    space = b"http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    text = b'<w:document xmlns:w="%b"><w:body>%b</w:body></w:document>' % (space, body)
    return _office("word/document.xml", "wordprocessingml.document.main+xml", {"word/document.xml": text})


def _table(cells: int) -> bytes:
    return b"<w:tbl><w:tr>" + b"<w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc>" * cells + b"</w:tr></w:tbl>"


def _sheet(rows: int, columns: int) -> bytes:
    space = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    cells = b"<row>" + b"<c><v>1</v></c>" * columns + b"</row>"
    sheet = b'<worksheet xmlns="%b"><sheetData>%b</sheetData></worksheet>' % (space, cells * rows)
    names = b'<sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets>'
    book = b'<workbook xmlns="%b" xmlns:r="%b">%b</workbook>' % (space, _OFFICE.encode(), names)
    link = f'<Relationship Id="r1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'.encode()
    files = {
        "xl/workbook.xml": book,
        "xl/worksheets/sheet1.xml": sheet,
        "xl/_rels/workbook.xml.rels": _RELATIONS % link,
    }
    return _office("xl/workbook.xml", "spreadsheetml.sheet.main+xml", files)


def _picture(size: int) -> bytes:
    """Return a PNG of one colour with so many pixels on each side: 900 million of them take a hundred kilobytes."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content).to_bytes(4, "big")
        return len(content).to_bytes(4, "big") + name + content + check

    packer = zlib.compressobj(9)
    row = bytes(1 + size // 8)
    pixels = b"".join(packer.compress(row) for _ in range(size)) + packer.flush()
    head = size.to_bytes(4, "big") * 2 + bytes((1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


# Bodies


def _bodies() -> Iterable[Case]:
    def wide() -> bytes:
        return b'{"message": [' + b"[]," * 5_300_000 + b"[]]}"

    def deep() -> bytes:
        return b'{"message": ' + _nest("[", "", "]", 100_000).encode() + b"}"

    paths = {"chat": "/api/v1/chat", "completions": "/v1/chat/completions", "MCP": "/mcp"}
    for name, path in paths.items():
        yield Case(f"body: 16 MB without a key, {name}", path, wide, with_key=False, right="refused")
        yield Case(f"body: 16 MB, {name}", path, wide, right="refused")
        yield Case(f"body: 100,000 levels, {name}", path, deep, right="refused")
    yield Case("body: 900,000 names", "/api/v1/chat", _many_names, right="refused")
    numbers = b'{"message": ' + b"9" * 4_000_000 + b"}"
    yield Case("body: a number of 4 million digits", "/api/v1/chat", lambda: numbers, right="refused")
    exchange = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    messages = {"model": "massmem", "messages": [*exchange * 4_999, {"role": "user", "content": "So?"}]}
    yield Case("body: 9,999 messages", "/v1/chat/completions", lambda: json.dumps(messages).encode())


def _many_names() -> bytes:
    return json.dumps({"message": "a", **{f"n{number}": 0 for number in range(900_000)}}).encode()


# Imports


def _imports() -> Iterable[Case]:
    path = "/api/v1/sessions/import?name=conversations"
    yield Case("import: messages in a circle", path, lambda: _tree({f"n{n}": f"n{(n + 1) % 999}" for n in range(999)}))
    chain: dict[str, str | None] = {f"n{number}": f"n{number - 1}" if number else None for number in range(20_000)}
    yield Case("import: a chain of 20,000 messages", path, lambda: _tree(chain))
    star: dict[str, str | None] = {f"n{number}": "n0" if number else None for number in range(50_000)}
    yield Case("import: 50,000 branches", path, lambda: _tree(star))
    yield Case("import: 100,000 levels", path, lambda: _nest("[", "", "]", 100_000).encode())
    blanks = json.dumps([{"role": "user", "content": "Is it" + " " * 1_000_000 + "so?"}]).encode()
    yield Case("import: a million blanks", path, lambda: blanks)
    yield Case("import: a ZIP of 1 GB", path, lambda: _zip({"conversations.json": b" " * 1_000_000_000}), times=4)
    many = {f"{number}.json": b"[]" for number in range(60_000)}
    yield Case("import: a ZIP of 60,000 files", path, lambda: _zip(many))


def _tree(parents: Mapping[str, str | None]) -> bytes:
    """Return an export of ChatGPT with one conversation, whose messages have these parents."""
    nodes: dict[str, Any] = {
        name: {
            "id": name,
            "parent": parent,
            "children": [],
            "message": {
                "id": name,
                "author": {"role": "user" if int(name[1:]) % 2 == 0 else "assistant"},
                "content": {"content_type": "text", "parts": [f"Message {name}."]},
            },
        }
        for name, parent in parents.items()
    }
    last = list(parents)[-1]
    return json.dumps([{"conversation_id": "c", "title": "t", "mapping": nodes, "current_node": last}]).encode()


# Searches, MCP


def _searches() -> Iterable[Case]:
    for path, name in (("/api/v1/search", "messages"), ("/api/v1/memories/search", "memories")):
        yield _search(f"{name}, 2,000 words", f"{path}?query={'+'.join(map(_spell, range(2_000)))}")
        yield _search(f"{name}, 25,000 letters", f"{path}?query={'a' * 25_000}")
        yield _search(f"{name}, 900 quotes", f"{path}?query={'%22' * 900}")
        yield _search(f"{name}, 400 words", f"{path}?query={'+'.join(map(''.join, product('ab', repeat=8)))[:990]}")


def _search(name: str, path: str) -> Case:
    return Case(f"search: {name}", path, bytes, times=20, method="GET")


def _mcp() -> Iterable[Case]:
    accept = {"accept": "application/json, text/event-stream"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    many = json.dumps([{**call, "id": number} for number in range(100_000)]).encode()
    yield Case("mcp: 100,000 calls", "/mcp", lambda: many, headers=accept)
    search = {"name": "search_memory", "arguments": {"query": "a b " * 200_000}}
    yield Case("mcp: a search of a million characters", "/mcp", lambda: _call(search), headers=accept)
    ask = {"name": "ask_council", "arguments": {"question": "Is it" + " " * 100_000 + "so?"}}
    yield Case("mcp: a question of 100,000 blanks", "/mcp", lambda: _call(ask), headers=accept)


def _call(params: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def _nest(opening: str, inner: str, closing: str, depth: int) -> str:
    return opening * depth + inner + closing * depth
