"""Reads items, and what others say of them, from replies: JSON of the form that was asked for, or Markdown near it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from massmem.core.items import Check, Item, Severity, Stand
from massmem.core.messages import clean_text
from massmem.core.text import one_line
from massmem.tools.actions import ActionError, list_values

MOST_ITEMS = 100
"""Of one reply; the others are not read."""
_LONGEST_TITLE, _LONGEST_TEXT, _LONGEST_UNREAD = 300, 2_000, 200

_NAMES: Mapping[str, str] = {
    "title": "title name finding issue problem risk option idea claim point titel befund titre título problème problema",
    "place": "place location where ort stelle lieu lugar ubicación",
    "file": "file path filename datei fichier archivo",
    "lines": "lines line line_number range zeile zeilen ligne lignes línea líneas start start_line",
    "end": "end end_line",
    "severity": "severity priority level impact schwere schweregrad gravité sévérité gravedad severidad",
    "reason": "reason why description explanation details detail rationale begründung grund warum raison motivo razón",
    "evidence": "evidence quote code proof snippet beleg zitat preuve citation evidencia prueba cita",
    "suggestion": "suggestion fix recommendation solution vorschlag empfehlung correction solución sugerencia",
    "kind": "kind type category art kategorie catégorie categoría tipo",
    "number": "item number id nummer numéro número",
    "stand": "stand verdict vote decision status urteil avis veredicto action done",
}
_FIELDS = {name: field for field, names in _NAMES.items() for name in names.split()}
_SEVERITIES: Mapping[Severity, str] = {
    "high": "high critical severe major blocker hoch kritisch schwer élevée haute critique grave alta alto crítica",
    "medium": "medium moderate mittel moyenne moyen media medio moderada warning",
    "low": "low minor trivial nit info niedrig gering faible basse baja bajo leve",
}
_LEVELS: Mapping[str, Severity] = {word: level for level, words in _SEVERITIES.items() for word in words.split()}
_STANDS: Mapping[Stand, str] = {
    "reject": "reject rejected disagree invalid wrong no false abgelehnt ablehnen nein rejeté rejeter non rechazar "
    "rechazado decline declined different",
    "abstain": "abstain abstained unsure unclear unknown enthaltung unklar abstention incertain abstenerse",
    "confirm": "confirm confirmed agree valid correct yes true bestätigt bestätigen ja confirmé confirmer oui "
    "confirmar confirmado sí accept accepted revise revised fixed same",
}
_POSITIONS: Mapping[str, Stand] = {word: stand for stand, words in _STANDS.items() for word in words.split()}
_FILE = re.compile(
    r"(?P<file>(?:[\w.@-]+[/\\])*[\w@-][\w.@-]*\.[A-Za-z]\w{0,9}|(?:[\w.@-]+/)+[\w.@-]+)`?"
    r"(?:[\s,:;(#]{1,3}(?:lines?|zeilen?|lignes?|líneas?|l)?\.?\s*(?P<first>\d{1,7})"
    r"(?:(?::\d+)?\s*(?:-|–|—|to|bis|à|a)\s*l?(?P<last>\d{1,7}))?)?",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(\d{1,7})(?:\D{1,5}(\d{1,7}))?")
_ENTRY = re.compile(r"(?P<indent>[ \t]*)(?:[-*+•]|\d{1,3}[.)]|#{1,6})[ \t]+(?:\[[ xX]\][ \t]+)?(?P<text>\S.*)")
_LABELLED = re.compile(r"[\s>*_+•-]*(?P<name>[^\W\d][\w ]{1,20}?)[*_`]*\s*[:：][*_`]*\s*(?P<text>.*)")
_BOLD = re.compile(r"\*\*(.+?)\*\*[\s:.–—-]*(.*)")
_MARK = re.compile(r"[\[(]\s*([\w ,/]+?)\s*[\])]")
_NOTHING = re.compile(
    r"\W*(?:(?:i|we) (?:have )?f(?:ou|i)nd )?(?:no|nothing|none|keine?|nichts|aucune?|rien|ning[uú]na?|nada)\b"
    r"[^.\n]{0,80}[.!]?\W*",
    re.IGNORECASE,
)
_FENCE = re.compile(r"```\w*")

Fields = dict[str, str]


def read_items(text: str) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Return the items in a reply, and beginnings of entries that cannot be read.

    Raises ActionError: it has no form.
    """
    entries = _read_entries(text)
    if entries is None:
        raise ActionError("there is no list of items in the reply")
    items, unread = list[Item](), list[str]()
    for entry in entries:
        item = make_item(entry) if len(items) < MOST_ITEMS else None
        if item is None:
            unread.append(one_line(clean_text(", ".join(entry.values())), _LONGEST_UNREAD) or "(empty)")
        else:
            items.append(item)
    if unread and not items:
        raise ActionError("no item in the list has a title")
    return tuple(items), tuple(unread)


def read_checks(text: str, numbers: Sequence[int]) -> tuple[Check, ...]:
    """Return what a reply says of the items with these numbers; of some it may say nothing.

    Raises ActionError: it says nothing of any.
    """
    checks: dict[int, Check] = {}
    for fields in _read_entries(text) or ():
        if (check := _make_check(fields)) is not None and check.item in numbers:
            checks.setdefault(check.item, check)
    if not checks:
        raise ActionError(
            f"it says of no item whether it is right; they have the numbers {', '.join(map(str, numbers))}"
        )
    return tuple(checks.values())


def make_item(fields: Mapping[str, str]) -> Item | None:
    """Return the item with these texts by field; None: it says nothing."""
    texts = {name: clean_text(text).strip() for name, text in fields.items()}
    text = texts.get("title") or texts.get("reason") or texts.get("suggestion") or ""
    title = one_line(text.strip("*_# "), _LONGEST_TITLE)
    if not any(map(str.isalnum, title)):
        return None
    place = " ".join(filter(None, (texts.get("file"), texts.get("place"))))
    match = _FILE.search(place)
    lines = _read_lines(match["first"], match["last"]) if match else None
    if lines is None and (match_of_lines := _RANGE.search(texts.get("lines", ""))):
        lines = _read_lines(match_of_lines[1], match_of_lines[2] or texts.get("end"))
    words = re.findall(r"\w+", texts.get("severity", "").casefold())
    others = {name: texts.get(name, "")[:_LONGEST_TEXT] for name in ("reason", "evidence", "suggestion")}
    return Item(
        title=title,
        kind=one_line(texts.get("kind", ""), 40),
        file=match["file"].replace("\\", "/").removeprefix("./") if match else "",
        lines=lines if match else None,
        place="" if match else one_line(place, _LONGEST_UNREAD),
        severity=next((_LEVELS[word] for word in words if word in _LEVELS), None),
        **others | ({"reason": ""} if others["reason"] == text else {}),
    )


def _read_lines(first: str | None, last: str | None) -> tuple[int, int] | None:
    begin = int(first or 0)
    return (begin, max(begin, int(last) if last and last.isdecimal() else begin)) if begin else None


def _make_check(fields: Mapping[str, str]) -> Check | None:
    texts = " ".join(filter(None, (fields.get("stand"), fields.get("title"), fields.get("reason"))))
    number = re.search(r"\d+", fields.get("number", ""))
    words = re.findall(r"\w+", (fields.get("stand") or texts).casefold())
    stand = next((_POSITIONS[word] for word in words if word in _POSITIONS), None)
    if number is None or stand is None:
        return None
    reason = fields.get("reason") or ("" if fields.get("stand") else texts)
    return Check(int(number[0]), stand, clean_text(reason).strip()[:_LONGEST_TEXT])


def _read_entries(text: str) -> list[Fields] | None:
    """Return the entries of the list in a reply, as texts by field; None: there is no list."""
    values: list[Any] = []
    for written in list_values(text):  # the last one first: models think before they answer
        with suppress(ValueError, RecursionError):
            values.append(json.loads(written))
    lists = [entries for value in values if (entries := _find_list(value)) is not None]
    # Without a list: objects in a row, or those of a list that was cut off.
    alone = [value for value in reversed(values) if _is_entry(value)]
    if entries := next(filter(None, lists), alone):
        return [_read_fields(entry) for entry in entries]
    plain = _FENCE.sub("", text).strip()
    if (lists and plain[:1] in "{[" and plain[-1:] in "}]") or _NOTHING.fullmatch(plain):
        return []
    return [*_read_markdown(plain)] or None


def _find_list(value: Any) -> list[Any] | None:
    """Return the list of entries that a JSON value is, or has."""
    if isinstance(value, dict) and not _is_entry(value):
        values = cast("dict[str, Any]", value).values()
        value = next((cast("list[Any]", entry) for entry in values if isinstance(entry, list)), None)
    entries = cast("list[Any]", value) if isinstance(value, list) else None
    return entries if entries is not None and all(isinstance(entry, dict | str) for entry in entries) else None


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and not {"title", "reason", "stand"}.isdisjoint(_read_fields(value))


def _read_fields(entry: Any) -> Fields:
    """Return the texts of an object by field; of a text its title."""
    if not isinstance(entry, dict):
        return {"title": str(entry)}
    fields: Fields = {}
    for key, value in cast("dict[str, Any]", entry).items():
        name = _FIELDS.get(str(key).strip().casefold().replace(" ", "_"))
        if isinstance(value, dict):  # a place with file and lines
            fields = _read_fields(value) | fields
        elif name and value not in (None, "", []):
            values = cast("list[Any]", value) if isinstance(value, list) else [value]
            fields.setdefault(name, "-".join(map(str, values)) if name == "lines" else ", ".join(map(str, values)))
    return fields


def _read_markdown(text: str) -> Iterator[Fields]:
    """Yield the entries of a list in Markdown: bullets, numbers or headings, with labelled lines or prose below."""
    entry: Fields = {}
    indent, heading = 0, False
    for line in text.splitlines():
        labelled, begins = _LABELLED.fullmatch(line), _ENTRY.fullmatch(line)
        name = _FIELDS.get(labelled["name"].casefold()) if labelled else None
        if labelled and name and (entry or name == "title") and not (name == "title" and "title" in entry):
            entry[name] = labelled["text"].strip()
        elif (begins and (not entry or heading or len(begins["indent"]) <= indent)) or (labelled and name == "title"):
            if entry and not (heading and len(entry) == 1 and not entry.get("number")):
                yield entry
            heading = line.lstrip().startswith("#")
            indent = len(begins["indent"]) if begins else 0
            entry = _read_line(begins["text"], line) if begins else {"title": labelled["text"] if labelled else line}
        elif entry and line.strip():
            entry["reason"] = " ".join(filter(None, (entry.get("reason"), line.strip().lstrip("-*+• "))))
    if entry and not (heading and len(entry) == 1):
        yield entry


def _read_line(text: str, line: str) -> Fields:
    """Return what the first line of an entry says: its number, place, severity and title."""
    fields: Fields = {}
    if number := re.match(r"\s*#*\s*(\d{1,3})[.)]|[^\w]*(?:item|#)\s*(\d{1,3})", line, re.IGNORECASE):
        fields["number"] = number[1] or number[2]
    for mark in _MARK.finditer(text):
        if any(word in _LEVELS for word in re.findall(r"\w+", mark[1].casefold())):
            fields["severity"], text = mark[1], text.replace(mark[0], "", 1)
    if (place := _FILE.search(text)) and (place["first"] or "/" in place["file"]):
        fields["place"] = place[0]
        text = text.replace(place[0], "", 1) if text.strip("*` ").startswith(place[0].strip("`")) else text
    bold = _BOLD.search(text)
    fields["title"] = (bold[1] if bold else text).strip(" `:–—-*")
    if bold and bold[2].strip():
        fields["reason"] = bold[2].strip()
    return fields
