"""The questions of an evaluation, read from JSONL or CSV, and whether an answer is right.

The names of the columns are those of the field's tools too: `input` and `target` (Inspect), `input` and `ideal` (OpenAI
evals), `__expected` (promptfoo), `problem` (MATH).

A long answer is reduced to a short value first: its last number, the letter that it chooses, its normalised text. Equal
values are the same answer, for comparing the members of a team and for the majority of several samples.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from massmem.core.criticism import build_label
from massmem.core.errors import InputError
from massmem.core.messages import clean_text
from massmem.core.patterns import PatternError, compile_pattern
from massmem.core.short_answers import normalise, read_choice, read_number, read_short_answer
from massmem.tools.answer_schema import FormError, check_schema, read_value

ScorerName = Literal["exact", "number", "choice", "contains", "regex", "schema", "judge"]
"""How an answer is compared with the expected one."""
SCORERS: tuple[ScorerName, ...] = get_args(ScorerName)

MAX_FILE = 200_000_000
"""Bytes of a file with questions."""
_QUESTION = ("question", "input", "prompt", "problem")
_ANSWER = ("answer", "answers", "target", "expected", "__expected", "ideal")
_NUMBER = re.compile(r"[-+]?[$€£]?\d[\d,]*(\.\d+)?\s*%?")
_EXAMPLE = 'a line of a JSONL file: {"question": "What is 6 x 7?", "answer": "42"}'


@dataclass(frozen=True, slots=True)
class Item:
    """One question with its expected answer."""

    id: str
    question: str
    """As it is asked, the choices included."""
    scorer: ScorerName
    expected: tuple[str, ...]
    """Any of them is right. Of `choice`: letters; of `regex`: patterns."""
    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    """The JSON Schema that the answer has to fit."""
    group: str = ""
    """The part of the data set that it belongs to."""

    @property
    def key(self) -> str:
        """Equal for equal questions, in any file and order."""
        asked = json.dumps([self.question, self.schema], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()[:16]


def load_items(path: Path, scorer: ScorerName | None = None) -> list[Item]:
    """Return the questions of a file, in order. scorer: for those that do not name their own.

    Raises InputError: the file cannot be read, or a line of it is no question with an answer.
    """
    rows = _read_csv(path) if path.suffix.lower() in (".csv", ".tsv") else _read_jsonl(path)
    items = [_build_item(row, f"{path}:{line}", number, scorer) for number, (line, row) in enumerate(rows, start=1)]
    if not items:
        raise InputError(f"{path} holds no questions", _EXAMPLE)
    return items


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder", "name a .jsonl or .csv file in it")
        if not path.exists():
            raise InputError(f"there is no file {path}", "check its name")
        if not path.is_file():
            raise InputError(f"{path} is no file", "name a .jsonl or .csv file")
        if path.stat().st_size > MAX_FILE:
            raise InputError(f"{path} is larger than {MAX_FILE // 1_000_000} MB", "split it, and evaluate its parts")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise InputError(f"{path} is not UTF-8 text", "save it as UTF-8") from e
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror or e}") from e


def _read_jsonl(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    text = _read_text(path)
    if text.lstrip().startswith("["):
        listed = cast("list[object]", _parse_json(text, str(path)))
        return [(number, _require_object(row, f"{path}:{number}")) for number, row in enumerate(listed, start=1)]
    lines = [(number, f"{path}:{number}", line) for number, line in enumerate(text.split("\n"), start=1)]
    return [(number, _require_object(_parse_json(line, place), place)) for number, place, line in lines if line.strip()]


def _parse_json(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise InputError(f"{where}: no JSON: {e}", _EXAMPLE) from e


def _require_object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: no JSON object", _EXAMPLE)
    return cast("Mapping[str, Any]", value)


def _read_csv(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the rows by line. A cell that begins with { or [ is JSON; empty cells are left out."""
    reader = csv.DictReader(io.StringIO(_read_text(path)), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    rows: list[tuple[int, Mapping[str, Any]]] = []
    try:
        for row in reader:
            where = f"{path}:{reader.line_num}"
            cells = {name.strip().lower(): text for name, text in row.items() if name and text}
            values = {n: _parse_json(text, where) if text[0] in "{[" else text for n, text in cells.items()}
            rows.append((reader.line_num, values))
    except csv.Error as e:
        raise InputError(f"{path}:{reader.line_num}: no CSV: {e}", "the first line names the columns") from e
    return rows


def _build_item(row: Mapping[str, Any], where: str, number: int, scorer: ScorerName | None) -> Item:
    question = _find_question(row, where)
    choices = _read_choices(row.get("choices"), where)
    expected = next((row[name] for name in _ANSWER if row.get(name) is not None), None)
    name, expected = _read_check(row.get("check"), expected, where)
    answers = _to_texts(expected, where, name)
    chosen = name or scorer or _choose_scorer(answers, choices)
    schema: Mapping[str, Any] | None = None
    if chosen == "schema":
        schema, answers = _check_schema(expected, where), ()
    elif not answers:
        raise InputError(f"{where}: the question has no answer to compare with", _EXAMPLE)
    if chosen == "choice":
        answers = tuple(_to_letter(answer, choices, where) for answer in answers)
        question = _add_choices(question, choices)
    if chosen == "regex":
        _check_patterns(answers, where)
    if chosen == "number" and (wrong := next((a for a in answers if read_number(a) is None), None)) is not None:
        raise InputError(f"{where}: the expected answer {wrong[:40]!r} is no number", "use another --scorer")
    return Item(
        id=str(row.get("id", number)),
        question=question,
        scorer=chosen,
        expected=answers,
        choices=choices,
        schema=schema,
        group=str(row.get("group", "")),
    )


def _find_question(row: Mapping[str, Any], where: str) -> str:
    question = next((row[name] for name in _QUESTION if row.get(name)), None)
    if isinstance(question, list):  # a list of chat messages: the last one is the question
        messages = cast("list[Any]", question)
        last: Any = messages[-1] if messages else None
        question = cast("Mapping[str, Any]", last).get("content") if isinstance(last, dict) else last
    if not isinstance(question, str) or not question.strip():
        raise InputError(f"{where}: there is no `question`", _EXAMPLE)
    return clean_text(question).strip()


def _read_choices(value: object, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        value = [part.strip() for part in value.split("|")]
    if isinstance(value, dict):  # as in ARC: {"text": [...], "label": [...]}
        value = cast("Mapping[str, object]", value).get("text")
    texts = cast("list[object]", value) if isinstance(value, list) else []
    if not 2 <= len(texts) <= 26:
        raise InputError(f"{where}: `choices` is no list of 2 to 26 texts", '"choices": ["red", "blue"]')
    return tuple(clean_text(str(text)).strip() for text in texts)


def _read_check(check: object, expected: object, where: str) -> tuple[ScorerName | None, object]:
    """Return the scorer that the question names, and what it compares with."""
    if check is None:
        return None, expected
    pairs: dict[object, object] = {check: expected} if isinstance(check, str) else {}
    if isinstance(check, dict):
        pairs = cast("dict[object, object]", check)
    for name in SCORERS:
        if list(pairs) == [name]:
            return name, pairs[name]
    hint = f'one of {", ".join(SCORERS)}, or {{"regex": "^4\\\\d$"}}'
    raise InputError(f"{where}: `check` is {json.dumps(check)[:60]}", hint)


def _to_texts(value: object, where: str, scorer: ScorerName | None) -> tuple[str, ...]:
    match value:
        case None:
            return ()
        case dict() if scorer == "schema":
            return ()
        case bool() | int() | float() | str():
            return (clean_text(str(value)).strip(),)
        case list():
            parts = cast("list[object]", value)
            return tuple(text for part in parts for text in _to_texts(part, where, scorer))
        case _:
            raise InputError(f"{where}: the answer is no text, number or list of them", _EXAMPLE)


def _choose_scorer(answers: Sequence[str], choices: Sequence[str]) -> ScorerName:
    if choices:
        return "choice"
    return "number" if answers and all(_NUMBER.fullmatch(text) or "####" in text for text in answers) else "exact"


def _to_letter(answer: str, choices: Sequence[str], where: str) -> str:
    """Return the letter that an answer means: a letter, the text of a choice, or its index from 0."""
    labels = [build_label(index) for index in range(len(choices))]
    if not choices:
        raise InputError(f"{where}: scorer `choice` needs `choices`", '"choices": ["red", "blue"], "answer": "B"')
    if answer in choices:
        return labels[choices.index(answer)]
    if answer.strip("()").upper() in labels:
        return answer.strip("()").upper()
    if answer.isdecimal() and int(answer) < len(labels):
        return labels[int(answer)]
    raise InputError(f"{where}: the answer {answer[:40]!r} is none of the choices", f"one of {', '.join(labels)}")


def _add_choices(question: str, choices: Iterable[str]) -> str:
    lines = "\n".join(f"{build_label(index)}) {choice}" for index, choice in enumerate(choices))
    return f"{question}\n\n{lines}\n\nEnd with the letter of the right choice, as in: The answer is A."


def _check_schema(value: object, where: str) -> Mapping[str, Any]:
    try:
        return check_schema(value)
    except InputError as e:
        raise InputError(f"{where}: {e.message}", e.hint) from e


def _check_patterns(patterns: Iterable[str], where: str) -> None:
    for pattern in patterns:
        try:
            compile_pattern(pattern)
        except PatternError as e:
            raise InputError(f"{where}: the pattern {pattern[:60]!r} cannot be used: {e}") from e


@dataclass(frozen=True, slots=True)
class Score:
    """Of one answer."""

    right: bool
    value: str
    """The answer in short; "" when nothing of the kind is in it."""


def score(item: Item, text: str) -> Score:
    """Return whether the text answers the question rightly. Of the scorer `judge`, only the value is known here."""
    match item.scorer:
        case "contains":
            plain = f" {normalise(text)} "
            hits = [answer for answer in map(normalise, item.expected) if f" {answer} " in plain]
            return Score(bool(hits), hits[0] if hits else plain.strip())
        case "regex":
            matches = (compile_pattern(pattern).search(text.strip()) for pattern in item.expected)
            hits = [match for match in matches if match is not None]
            return Score(bool(hits), hits[0] if hits else normalise(text))
        case "schema":
            try:
                value = read_value(text, item.schema or {})
            except FormError:
                return Score(False, normalise(text))
            return Score(True, json.dumps(value, sort_keys=True, ensure_ascii=False))
        case "judge":
            return Score(False, normalise(text))
        case "number" | "choice" | "exact":
            value = _reduce(item, text)
            return Score(value != "" and value in {_reduce(item, expected) for expected in item.expected}, value)


def _reduce(item: Item, text: str) -> str:
    match item.scorer:
        case "number":
            return read_number(text) or ""
        case "choice":
            return text if text in item.expected else read_choice(text, item.choices)
        case _:
            return read_short_answer(text).key
