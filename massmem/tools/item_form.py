"""Reads items, and what others say of them, from replies: JSON of the form that was asked for, or Markdown near it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from massmem.core.citations import list_addresses
from massmem.core.items import Check, Item, Severity, Stand
from massmem.core.messages import clean_text
from massmem.core.text import one_line
from massmem.tools.actions import ActionError, list_values

MOST_ITEMS = 100
"""Of one reply; the others are not read."""
_LONGEST_TITLE, _LONGEST_TEXT = 300, 2_000

_NAMES = {
    "title": "title name finding issue problem risk option idea claim point titel befund titre título problème",
    "place": "place source url location where ort stelle lieu lugar file path datei fichier archivo",
    "lines": "lines line range zeile zeilen ligne lignes línea líneas start start_line",
    "severity": "severity priority level schwere schweregrad gravité sévérité gravedad severidad",
    "reason": "reason why description explanation details detail begründung grund warum raison motivo razón",
    "evidence": "evidence quote code proof snippet beleg zitat preuve citation evidencia cita",
    "suggestion": "suggestion fix recommendation solution vorschlag empfehlung correction solución sugerencia",
    "kind": "kind type category art kategorie catégorie categoría tipo",
    "number": "item number id nummer numéro número",
    "stand": "stand verdict vote decision status urteil avis veredicto",
}
_SEVERITIES: dict[Severity, str] = {
    "high": "high critical severe major blocker hoch kritisch schwer élevée haute critique grave alta alto crítica",
    "medium": "medium moderate warning mittel moyenne moyen media medio moderada",
    "low": "low minor trivial nit info niedrig gering faible basse baja bajo leve",
}
_STANDS: dict[Stand, str] = {
    "reject": "reject rejected disagree invalid wrong no false declined different abgelehnt nein rejeté non rechazado",
    "abstain": "abstain abstained unsure unclear unknown enthaltung unklar abstention incertain",
    "confirm": "confirm confirmed agree valid correct yes true revised same bestätigt ja confirmé oui confirmado sí",
}
_FIELDS = {word: name for name, words in _NAMES.items() for word in words.split()}
_LEVELS: dict[str, Severity] = {word: level for level, words in _SEVERITIES.items() for word in words.split()}
_POSITIONS: dict[str, Stand] = {word: stand for stand, words in _STANDS.items() for word in words.split()}
_FILE = re.compile(
    r"(?<![\w.@/\\-])(?P<file>(?:[\w.@-]+[/\\])*[\w@-][\w.@-]*\.[A-Za-z]\w{0,9}|(?:[\w.@-]+/)+[\w.@-]+)`?"
    r"(?:[\s,:;(#]{1,3}(?:lines?|zeilen?|lignes?|líneas?|l)?\.?\s*(?P<first>\d{1,7})"
    r"(?:(?::\d+)?\s*(?:-|–|—|to|bis|à|a)\s*l?(?P<last>\d{1,7}))?)?",
    re.IGNORECASE,
)
_ENTRY = re.compile(r"(?P<indent>[ \t]*)(?:[-*+•]|(?P<number>\d{1,3})[.)]|#{1,6})[ \t]+(?:\[[ xX]\] )?(?P<text>\S.*)")
_LABELLED = re.compile(r"[\s>*_+•-]*(?P<name>[^\W\d]\w{1,20})[*_`]*\s*[:：][*_`]*\s*(?P<text>.*)")
_BOLD = re.compile(r"\*\*(?P<number>\d{0,3})[.)]?\s{0,3}(.{1,500}?)\*\*[\s:.–—-]*(.*)")
_MARK = re.compile(r"[\[(]([\w ,/]{1,80})[\])]")
_NOTHING = re.compile(
    r"\W*(?:(?:i|we) f(?:ou|i)nd )?(?:no|nothing|none|keine?|nichts|aucune?|rien|ningun[oa]?|nada)\b[^.\n]{0,80}\W*",
    re.IGNORECASE,
)

Fields = dict[str, str]


def read_items(text: str) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Return the items in a reply, and beginnings of entries that cannot be read. Raise ActionError: it has no form."""
    entries = _read_entries(text)
    if entries is None:
        raise ActionError("there is no list of items in the reply")
    read = [(make_item(entry) if number < MOST_ITEMS else None, entry) for number, entry in enumerate(entries)]
    items = tuple(item for item, _ in read if item is not None)
    unread = tuple(one_line(clean_text(", ".join(entry.values()))) or "(empty)" for item, entry in read if item is None)
    if unread and not items:
        raise ActionError("no item in the list has a title")
    return items, unread


def read_checks(text: str, numbers: Sequence[int]) -> tuple[Check, ...]:
    """Return what a reply says of items with these numbers, of some maybe nothing. Raise ActionError: of none."""
    checks = {check.item: check for check in filter(None, map(_make_check, _read_entries(text) or ()))}
    known = tuple(check for number, check in checks.items() if number in numbers)
    if not known:
        raise ActionError(f"it says nothing of the items {', '.join(map(str, numbers))}")
    return known


def make_item(fields: Mapping[str, str]) -> Item | None:
    """Return the item with these texts by field; None: it says nothing."""
    texts = {name: clean_text(text).strip()[:_LONGEST_TEXT] for name, text in fields.items()}
    text = texts.get("title") or texts.get("reason") or texts.get("suggestion") or ""
    title = one_line(text.strip("*_#` "), _LONGEST_TITLE)
    if not any(map(str.isalnum, title)) or title == "<one sentence>":  # as the form has it
        return None
    place = ":".join(filter(None, (texts.get("place"), texts.get("lines"))))
    addresses = list_addresses(place)
    match, words = None if addresses else _FILE.search(place), re.findall(r"\w+", texts.get("severity", "").casefold())
    first, last = (int(match[name] or 0) for name in ("first", "last")) if match else (0, 0)
    return Item(
        title=title,
        kind=one_line(texts.get("kind") or texts.get("stand", ""), 40),
        file=match["file"].replace("\\", "/").removeprefix("./") if match else "",
        lines=(first, max(first, last)) if first else None,
        place="" if match else next(iter(addresses), one_line(place)),
        severity=next((_LEVELS[word] for word in words if word in _LEVELS), None),
        reason="" if texts.get("reason") == text else texts.get("reason", ""),
        evidence=texts.get("evidence", ""),
        suggestion=texts.get("suggestion", ""),
    )


def _make_check(fields: Mapping[str, str]) -> Check | None:
    """Return what the fields say of an item: under `stand`, or in the first line of an entry."""
    text = fields.get("stand") or f"{fields.get('title', '')} {fields.get('reason', '')}"
    number = re.search(r"\d+", fields.get("number", ""))
    stands: list[Stand] = [_POSITIONS[word] for word in re.findall(r"\w+", text.casefold()) if word in _POSITIONS]
    reason = clean_text(fields.get("reason", "") if "stand" in fields else text).strip()[:_LONGEST_TEXT]
    return Check(int(number[0]), stands[0], reason) if number and stands else None


def _read_entries(text: str) -> list[Fields] | None:
    """Return the entries of the list in a reply, as texts by field; None: there is no list."""
    values: list[Any] = []
    for written in list_values(text):  # the last one first: models think before they answer
        with suppress(ValueError, RecursionError):
            values.append(json.loads(written))
    lists = [entries for value in values if (entries := _find_list(value)) is not None]
    # Without a list: objects in a row, or those of a list that was cut off.
    if entries := next(filter(None, lists), [value for value in reversed(values) if _is_entry(value)]):
        return [_read_fields(entry) for entry in entries]
    plain = text.replace("```json", "").replace("```", "").strip()
    if (lists and plain[:1] in "{[" and plain[-1:] in "}]") or _NOTHING.fullmatch(plain):
        return []
    return [*_read_markdown(plain)] or None


def _find_list(value: Any) -> list[Any] | None:
    """Return the list of entries that a JSON value is, or has."""
    if isinstance(value, dict) and not _is_entry(value):
        parts = cast("dict[str, Any]", value).values()
        value = next((cast("list[Any]", part) for part in parts if isinstance(part, list)), None)
    entries = cast("list[Any]", value) if isinstance(value, list) else [None]
    return entries if all(isinstance(entry, dict | str) for entry in entries) else None


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and not {"title", "reason", "stand"}.isdisjoint(_read_fields(value))


def _read_fields(entry: Any) -> Fields:
    """Return the texts of an object by field; of a text its title."""
    fields: Fields = {} if isinstance(entry, dict) else {"title": str(entry)}
    for key, value in cast("dict[str, Any]", entry).items() if isinstance(entry, dict) else ():
        name = _FIELDS.get(str(key).strip().casefold())
        if isinstance(value, dict):  # a place with file and lines
            fields = _read_fields(value) | fields
        elif name and value not in (None, "", []):
            values = cast("list[Any]", value) if isinstance(value, list) else [value]
            fields.setdefault(name, "-".join(map(str, values)) if name == "lines" else ", ".join(map(str, values)))
    return fields


def _read_markdown(text: str) -> Iterator[Fields]:
    """Yield the entries of a list in Markdown: bullets, numbers or headings, with labelled lines or prose below."""
    entry: Fields = {}
    indent, is_heading = 0, False
    for line in [*text.splitlines(), "- "]:
        labelled, begins = _LABELLED.fullmatch(line), _ENTRY.fullmatch(line)
        name = _FIELDS.get(labelled["name"].casefold()) if labelled else None
        if labelled and name and entry.keys() - {name}:
            entry[name] = labelled["text"].strip()
        elif line == "- " or (begins and (not entry or is_heading or len(begins["indent"]) <= indent)):
            if entry and not (is_heading and len(entry) == 1):  # a heading over a list is no entry
                yield entry
            if begins:
                is_heading, indent, entry = line.lstrip()[0] == "#", len(begins["indent"]), _read_line(begins)
        elif entry and line.strip():
            entry["reason"] = " ".join(filter(None, (entry.get("reason"), line.strip(" \t-*+•"))))


def _read_line(match: re.Match[str]) -> Fields:
    """Return what the first line of an entry says: its number, severity, place and title."""
    text = match["text"]
    fields: Fields = {"number": match["number"]} if match["number"] else {}
    for mark in _MARK.finditer(text):
        if not _LEVELS.keys().isdisjoint(re.findall(r"\w+", mark[1].casefold())):
            fields["severity"], text = mark[1], text.replace(mark[0], "", 1)
    if (place := _FILE.search(text)) and (place["first"] or "/" in place["file"]):
        fields["place"] = place[0]
        text = text.replace(place[0], "", 1) if text.lstrip("*` ").startswith(place[0].strip("`")) else text
    if bold := _BOLD.search(text):
        fields |= {"title": bold[2], "reason": bold[3].strip()}
    return {"title": text.strip(" `:–—-*"), **fields}
