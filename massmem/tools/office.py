"""Documents, slides, books and web pages as Markdown, with an account of what is missing.

anydoc reads them all. Of Word and PowerPoint it drops headers, comments, diagrams and more: each paragraph of the file
whose words its text does not have is added below it. What a person does not see is left out, and named.
"""

import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from io import BytesIO
from posixpath import join, normpath
from typing import Any

from massmem.core.errors import InputError

_OOXML = "http://schemas.openxmlformats.org/"
_OPEN = "urn:oasis:names:tc:opendocument:xmlns:"
_SPACES = {"w": _OOXML + "wordprocessingml/2006/main", "p": _OOXML + "presentationml/2006/main",
           "a": _OOXML + "drawingml/2006/main", "text": _OPEN + "text:1.0", "style": _OPEN + "style:1.0"}  # fmt: skip
_READ = re.compile(
    r"(?:(?:word|ppt|xl)/(?!glossary|styles|.*(?:Master|Layout))(?:\w+/)*)?(?:modern|threaded)?(document|slide|notesSlide"
    r"|footnotes|endnotes|header|footer|[cC]omments?|drawing|data|chart|content|styles)\w*+\.xml"
)
"""The parts of an Office file that have a text, and their kinds. The drawing of a diagram repeats what its data say."""
_WORD = re.compile(r"\w+")
_LABELS = {"document": "Elsewhere", "data": "Diagram", "drawing": "Text box", "slide": "Text", "notesSlide": "Notes",
           "content": "Elsewhere", "styles": "Header or footer"}  # fmt: skip
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_SKIPPED = ("Fallback", "del", "moveFrom", "oMath", "fld", "tracked-changes", "note")  # not shown, or in another form
_UNIT = " or ".join(f"local-name()='{kind}'" for kind in ("p", "comment", "threadedComment", "cm", "reply", "ser"))
_UNSEEN_RUNS = """//w:r[w:rPr/w:vanish[not(@w:val='0' or @w:val='false')] or
    (w:rPr/w:rStyle | ../w:pPr/w:pStyle)[contains($styles, concat('|', @w:val, '|'))] or w:rPr/w:sz/@w:val < 4
    or w:rPr/w:color/@w:val = (w:rPr/w:shd | ../w:pPr/w:shd | ancestor::w:tc[1]/w:tcPr/w:shd)[last()]/@w:fill
    or w:rPr/w:color/@w:val='FFFFFF'
    and not(ancestor-or-self::*[w:rPr/w:shd or w:rPr/w:highlight or w:pPr/w:shd or w:tcPr/w:shd or w:tblPr/w:tblStyle
    or w:background or self::w:txbxContent or self::w:hdr or self::w:ftr])]"""
_UNSEEN_OPEN = """//*[@text:display='none' and not(self::style:*)] |
    //*[@text:style-name = //style:style[style:text-properties/@text:display='none']/@style:name]"""
_GROUNDS = """//p:pic | //p:graphicFrame | //p:spPr/*[contains(local-name(), 'Fill') and local-name()!='noFill'] |
    //a:fillRef[@idx!='0'] | //p:bgRef[@idx!='1001'] | //@bg1[.!='lt1']"""
_UNSEEN_TEXT = """//a:r/a:rPr/a:solidFill/*[not(*)]/@val[. = ancestor::p:sp[1]/p:spPr/a:solidFill/*[not(*)]/@val
    or $is_plain and (. = //p:bgPr/a:solidFill/*/@val or not(//p:bg) and contains('FFFFFF bg1', .))]/../../../../a:t"""
_PICTURES = "//*[local-name()='docPr'][..//*[local-name()='blip']] | //p:pic/p:nvPicPr/p:cNvPr"
_HIDING = re.compile(r"display:none|visibility:(?:hidden|collapse)|(?:font-size|opacity):0(?![.\d]*[1-9])")
_AT_RULE = re.compile(r"@[^{]*+(?:\{(?:[^{}]*+\{[^}]*+\}?)*[^{}]*+\}?)?")  # the end of a sheet closes what is open
_PICTURE = re.compile(r"\\?\[(picture[^\]\n]*+)(\]?)")  # without an end, it is passed over as a whole
_UNREAD_RTF = re.compile(rb"\{\\(?:\*\\)?(header|footer|annotation)\w*[ \\]")
_BOOK = {
    "META-INF/container.xml": '<container><rootfiles><rootfile full-path="book"/></rootfiles></container>',
    "book": "<package><manifest><item id='p' href='p' media-type='application/xhtml+xml'/></manifest><spine><itemref "
    "idref='p'/></spine></package>",
}
"""An EPUB around a web page `p`: anydoc reads pages in books alone."""

Reading = tuple[str, list[str]]  # a text, and notes on what is not in it, or marked in it


def read_package(name: str, suffix: str, data: bytes) -> Reading:
    """Read a document. Raises InputError, and what `zipfile` raises of a damaged archive."""
    if suffix in (".epub", ".rtf"):
        unread = {code.decode() for code in _UNREAD_RTF.findall(data)} if suffix == ".rtf" else ()
        return _convert(name, suffix, data), [f"{code}s, not read" for code in sorted(unread)]
    with zipfile.ZipFile(BytesIO(data)) as archive:
        parts, places, notes = read_parts(archive)
        files = {part: archive.read(part) for part in archive.namelist()}
    styles = "|".join(_find(parse(files.get("word/styles.xml", b"")), "//w:style[w:rPr/w:vanish]/@w:styleId"))
    hidden = sum(_tidy(root, f"|{styles}|" if styles else "") for root in parts.values())
    designs = [parse(data) for part, data in files.items() if re.search(r"slide(?:Master|Layout)s/\w+\.xml", part)]
    is_plain = not any(_find(design, f"{_GROUNDS} | //p:bgPr") for design in designs)
    for root in (root for part, root in parts.items() if part.startswith("ppt/slides/")):
        for leaf in _find(root, _UNSEEN_TEXT, is_plain=is_plain and not _find(root, _GROUNDS)):
            leaf.text, hidden = f"[hidden, the colour of its ground: {leaf.text}]", hidden + 1
    files |= {part: import_module("lxml.etree").tostring(root) for part, root in parts.items()}
    text = _convert(name, suffix, _pack(files))
    notes += [f"hidden passages, left out or marked: {hidden}"] * (hidden > 0)
    for mark, what in ((b"<w:ddList", "the choice in a drop-down field"), (b"<w:checkBox", "marks in old check boxes")):
        notes += [f"{what}, not read"] * (mark in files.get("word/document.xml", b""))
    return "\n\n".join((text, *list_missing(text, parts, places))), notes


def _pack(files: Mapping[str, bytes | str]) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def read_html(name: str, text: str) -> Reading:
    """Read a page of HTML. Raises InputError: as `read_package`."""
    html: Any = import_module("lxml.html")
    root = import_module("lxml.etree").fromstring(re.sub(r"^\s*<\?xml[^>]*\?>", "", text), html.html_parser)
    root = html.document_fromstring("<p></p>") if root is None else root  # of blanks, or a comment alone
    body, hidden = next(root.iter("body"), root), 0
    has_ground = bool(root.xpath("//style | //link | //*[@bgcolor or @background or contains(@style, 'background')]"))
    sheet = " ".join(_AT_RULE.sub("", sheet) for sheet in root.xpath("//style/text()"))
    rules = re.findall(r"(?<![^{}])([^{}]++)\{([^}]*+)\}?", sheet)
    unseen = {name.strip() for names, rule in rules if _hides(rule, has_ground) for name in names.split(",")}
    for element in list(body.iterdescendants("*")):
        names = {element.tag, f"#{element.get('id')}", *(f".{name}" for name in element.get("class", "").split())}
        is_hidden = element.get("hidden") is not None or element.get("type") == "hidden"
        if is_hidden or names & unseen or _hides(element.get("style", ""), has_ground):
            hidden += bool(element.text_content().strip() or element.get("value"))
            element.drop_tree()
        elif element.tag in ("script", "style", "template", "noscript"):
            element.drop_tree()
        elif (shown := _write_field(element)) is not None:
            element.clear(keep_tail=True)
            element.tag, element.text = "span", f" {shown} "
        elif element.tag in ("dt", "dd", "summary", "legend", "option", "textarea"):
            element.tag = "p"
        elif element.tag == "sup":
            element.text = f"^{element.text or ''}"
    page = b"<html>%s</html>" % html.tostring(body, method="xml", encoding="utf-8", with_tail=False)
    return _convert(name, ".epub", _pack(_BOOK | {"p": page})), [f"hidden passages, left out: {hidden}"] * (hidden > 0)


def _hides(style: str, has_ground: bool) -> bool:
    """Whether a style hides a text. White hides it on a white ground, and where nothing has a ground."""
    style = re.sub(r"\s|!important", "", style.lower()).replace("#ffffff", "#fff").replace("white", "#fff")
    colours = dict(re.findall(r"(?:^|;)(color|background)(?:-color)?:([^;]+)", style))
    return bool(_HIDING.search(style)) or colours.get("color") == colours.get("background", "#fff" * (not has_ground))


def _write_field(element: Any) -> str | None:
    """Return what a picture or a field of a form shows; None for other elements."""
    if element.tag in ("img", "video", "audio", "iframe", "object", "embed"):
        source = re.sub(r"^data:.*", "", element.get("src", ""))
        return f"[{element.tag.replace('img', 'picture')}: {element.get('alt') or source}]".replace(": ]", "]")
    if element.tag == "select":
        chosen = element.xpath(".//option[@selected]") or element.xpath(".//option")[:1]
        return ", ".join(option.text_content().strip() for option in chosen)
    if element.get("type") in ("checkbox", "radio"):
        return "☐" if element.get("checked") is None else "☒"
    return element.get("value", "") * (element.get("type") != "password") if element.tag == "input" else None


def _convert(name: str, suffix: str, data: bytes) -> str:
    anydoc: Any = import_module("anydoc")
    try:
        text: str = anydoc.to_markdown_bytes(data, suffix[1:])
    except anydoc.ConvertError as e:
        raise InputError(f"{name} cannot be read as {suffix}: {e}", "save it anew, whole and without a password") from e
    return _PICTURE.sub(lambda m: "[" + m[1].removesuffix("\\") + "]" if m[2] else m[0], text).strip("\n")


def parse(data: bytes) -> Any:
    """Return the root of XML, of which nothing outside is loaded."""
    etree: Any = import_module("lxml.etree")
    root = etree.fromstring(data or b"<none/>", etree.XMLParser(resolve_entities=False, no_network=True, recover=True))
    return etree.Element("none") if root is None else root


def read_parts(archive: zipfile.ZipFile) -> tuple[dict[str, Any], dict[str, tuple[str, str]], list[str]]:
    """Return the parts of an Office file that have a text, the slide or sheet of each and its name, and notes."""
    names = archive.namelist()
    charts = b"".join(archive.read(name) for name in names if "/charts/_rels/" in name)
    films = {name for name in names if re.search(r"\.(?:m|wav|avi)", name.partition("/media/")[2])}
    inner = [name.rpartition("/")[2] for name in names if "/embeddings/" in name or name in films]
    notes = [f"embedded file, not read: {name}" for name in inner if name.encode() not in charts]
    shown = [name for name in names if _READ.fullmatch(name) and "/diagrams/drawing" not in name]
    shown.sort(key=lambda name: "/slide" not in name and "/document" not in name)
    parts, places = {name: parse(archive.read(name)) for name in shown}, _find_places(archive, names)
    lists = [parse(archive.read(name)) for name in names if re.search(r"(?i)authors\.xml$|/persons/", name)]
    authors = {person.get("id"): person.get("name") or person.get("displayName") for root in lists for person in root}
    for name in shown:
        _sign_comments(parts[name], parts.get(places.get(name, ("",))[0], parts[name]), authors)
    return parts, places, notes


def _find_places(archive: zipfile.ZipFile, names: list[str]) -> dict[str, tuple[str, str]]:
    def find_targets(part: str) -> dict[str, str]:
        folder, _, name = part.rpartition("/")
        links = f"{folder}/_rels/{name}.rels"
        root = parse(archive.read(links) if links in names else b"")
        return {link.get("Id"): normpath(join(folder, link.get("Target", ""))).lstrip("/") for link in root}

    places = dict[str, tuple[str, str]]()
    for book in filter(names.__contains__, ("ppt/presentation.xml", "xl/workbook.xml")):
        targets, units = find_targets(book), parse(archive.read(book)).iter("{*}sldId", "{*}sheet")
        for number, unit in enumerate(units, 1):
            owner, name = targets.get(unit.get(_LINK), ""), unit.get("name")
            places[owner] = owner, f"sheet {name}" if name else f"slide {number}"
    for _ in "ab":  # the drawing of a sheet, and its charts
        for part, place in list(places.items()):
            places = dict.fromkeys(find_targets(part).values(), place) | places
    return places


def _sign_comments(root: Any, slide: Any, authors: Mapping[str, str]) -> None:
    """Write the author and the shape at each comment and reply, and replies behind their comments."""
    shapes = {shape.get("id"): shape.get("name") for shape in slide.iter("{*}cNvPr")}
    for comment in list(root.iter("{*}cm", "{*}reply", "{*}comment", "{*}threadedComment")):
        author = authors.get(comment.get("authorId") or comment.get("personId"))
        places = [shapes.get(mark.get("id")) for mark in comment.iterfind("{*}deMkLst/*[@id]")]
        comment.set("by", ": ".join(filter(None, (comment.get("ref"), *places, author))))
        for reply in reversed(comment.findall("{*}replyLst/{*}reply")):
            comment.addnext(reply)


def _find(root: Any, path: str, **variables: str | bool) -> list[Any]:
    return root.xpath(path, namespaces=_SPACES, **variables)


def _tidy(root: Any, styles: str) -> int:
    """Remove what is hidden, mark a hidden slide, and name pictures where they stand. Count what was hidden."""
    hidden = (
        _find(root, _UNSEEN_RUNS, styles=styles)
        + _find(root, "//p:cNvPr[@hidden='1']/../..")
        + _find(root, _UNSEEN_OPEN)
    )
    count = sum(any(text.text for text in element.iter("{*}t", "{*}p", "{*}span")) for element in hidden)
    for element in hidden:
        element.tag = "unseen"
    for line in root.iterfind(".//{*}annotation/{*}p"):
        line.text = f" [comment by {line.getparent().findtext('{*}creator')}] {line.text or ''}"
    import_module("lxml.etree").strip_elements(root, "unseen", "{*}creator", with_tail=False)
    for leaf in _find(root, "//w:r[w:rPr/w:vertAlign/@w:val='superscript']/w:t | //a:r[a:rPr/@baseline > 0]/a:t"):
        leaf.text = f"^{leaf.text}"
    for properties in _find(root, _PICTURES):
        properties.set("descr", f"[picture: {properties.get('descr', '')}]".replace(": ]", "]"))
    if root.get("show") in ("0", "false") and (first := next(root.iter("{*}t"), None)) is not None:
        first.text, count = f"[hidden slide] {first.text}", count + 1
    return count


def list_missing(text: str, parts: Mapping[str, Any], places: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield each paragraph of the parts whose words a text does not have, with where it stands."""
    left = Counter(_WORD.findall(re.sub(r"[*~`\\]", "", text).casefold()))
    for part, root in parts.items():
        kind = (_READ.fullmatch(part) or [part, part])[1]
        kind = _LABELS.get(kind, kind.removesuffix("s").capitalize())
        numbers = re.findall(r"(?<!\d)\d++(?=\.xml)", part)
        label = f"{kind} on {places[part][1]}" if part in places else " ".join((kind, *numbers))
        for paragraph in _list_paragraphs(root):
            words = Counter(_WORD.findall(paragraph.casefold()))
            if words - left:
                yield f"{label}: {paragraph}"
            left -= words


def _list_paragraphs(root: Any) -> Iterator[str]:
    """Yield the texts of a part of an Office file: paragraphs with their boxes, comments, series of charts."""
    import_module("lxml.etree").strip_elements(root, *(f"{{*}}{tag}" for tag in _SKIPPED), with_tail=False)
    for unit in _find(root, f"//*[{_UNIT}][not(ancestor::*[{_UNIT}])]"):
        leaves = unit.iter("{*}p", "{*}t", "{*}text", "{*}textpath", "{*}tab", "{*}br", "{*}v")
        between = ", " * unit.tag.endswith("}ser")
        text = between.join(leaf.get("string") or leaf.text or " " for leaf in leaves).strip()
        text = "".join(unit.itertext()).strip() if unit.prefix == "text" else text  # of OpenDocument
        place = unit.get("by") or unit.get(f"{{{_SPACES['w']}}}author")
        yield f"{place}: {text}" if place and text else text
