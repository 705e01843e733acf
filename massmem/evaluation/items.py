"""The questions of an evaluation, read from JSONL or CSV, and whether an answer is right.

The names of the columns are those of the field's tools too: `input` and `target` (Inspect), `input` and `ideal` (OpenAI
evals), `__expected` (promptfoo), `problem` (MATH).

Those of data sets too, as they have them: ARC, HellaSwag, TruthfulQA, GPQA, MMLU, MMLU-Pro and BIG-Bench.

A long answer is reduced to a short value first: its number, the letter that it chooses, its normalised text. Equal
values are the same answer, for comparing the members of a team and for the majority of several samples.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, Literal, cast, get_args

from massmem.core.criticism import build_label
from massmem.core.errors import InputError
from massmem.core.messages import clean_text
from massmem.core.patterns import PatternError, compile_pattern
from massmem.core.short_answers import Result, has_words, normalise, read_choice, read_short_answer
from massmem.evaluation.tasks import OpenTask, read_task
from massmem.tools.answer_schema import FormError, check_schema, read_value

ScorerName = Literal["exact", "number", "choice", "contains", "regex", "schema", "judge"]
"""How an answer is compared with the expected one."""
SCORERS: tuple[ScorerName, ...] = get_args(ScorerName)

MAX_FILE = 200_000_000
"""Bytes of a file with questions."""
_QUESTION = ("question", "input", "prompt", "problem", "ctx")
_ANSWER = ("answer", "answers", "target", "expected", "__expected", "ideal", "answerkey", "correct_answers")
_ASSERTION = re.compile(
    r"(equals|i?contains(?:-any)?|regex|is-json|llm-rubric|factuality)\s*(?::|$)"
    r"|(?:similar|javascript|python|fn|eval|webhook|levenshtein|latency|cost|[a-z]+-[a-z-]+)\s*(?:\([\d.]+\))?:"
)
"""How an `__expected` of promptfoo begins, at first the kinds that are played; any other text is the answer."""
_ASSERTED: dict[str, ScorerName] = {"equals": "exact", "regex": "regex", "is-json": "schema"}
_EXAMPLE = 'a line of a JSONL file: {"question": "What is 6 x 7?", "answer": "42"}'


@dataclass(frozen=True, slots=True)
class Item:
    """One question with its expected answer."""

    id: str
    question: str
    """As it is asked, the choices included."""
    scorer: ScorerName | Literal["open"]
    expected: tuple[str, ...]
    """Any of them is right. Of `choice`: letters; of `regex`: patterns."""
    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    """The JSON Schema that the answer has to fit."""
    group: str = ""
    """The part of the data set that it belongs to."""
    task: OpenTask | None = None
    """In place of an expected answer; the scorer is `open`."""

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
    row = {name.strip().lower(): value for name, value in row.items()}
    question = _find_question(row, where)
    expected = next((row[name] for name in _ANSWER if row.get(name) is not None), None)
    if (task := read_task(row, expected, where)) is not None:
        return Item(str(row.get("id", number)), question, "open", (), group=str(row.get("group", "")), task=task)
    choices, labels, expected = _read_choices(row, expected, question, where)
    name, expected = _read_check(row.get("check"), expected, where)
    if any(re.fullmatch(r"__expected\d+", key) for key in row):
        raise InputError(f"{where}: several `__expected`", "leave one, or put them into one `check`")
    if name is None and isinstance(text := row.get("__expected"), str) and (match := _ASSERTION.match(text)):
        name, expected = _read_assertion(match, text, where)
    answers = _to_texts(expected, where, name)
    chosen = name or scorer or _choose_scorer(answers, choices)
    schema: Mapping[str, Any] | None = None
    if chosen == "schema":
        schema, answers = _check_schema(expected, where), ()
    elif not answers:
        raise InputError(f"{where}: the question has no answer to compare with", _EXAMPLE)
    if chosen == "choice":
        answers = tuple(_to_letter(answer, choices, labels, where) for answer in _list(expected))
        question = _add_choices(question, choices)
    if chosen == "regex":
        _check_patterns(answers, where)
    if chosen == "number" and (wrong := next((a for a in answers if _read_number(a) is None), None)) is not None:
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


def _read_choices(
    row: Mapping[str, Any], expected: object, question: str, where: str
) -> tuple[tuple[str, ...], Sequence[str], object]:
    """Return the texts of the choices, their labels where the data set has some, and which of them are right."""
    try:
        listed, labels, expected = _find_choices(row, expected, question)
    except (AttributeError, KeyError, TypeError, ValueError):
        listed, labels = "", ()
    if listed is None:
        return (), (), expected
    if not isinstance(listed, list) or not 2 <= len(cast("list[object]", listed)) <= 26:
        raise InputError(f"{where}: `choices` is no list of 2 to 26 texts", '"choices": ["red", "blue"]')
    if "answer_index" in row and _list(expected) != [build_label(row["answer_index"])]:  # MMLU-Pro
        raise InputError(f"{where}: `answer` and `answer_index` name two choices", "leave the right one")
    return tuple(clean_text(str(text)).strip() for text in cast("list[object]", listed)), labels, expected


def _find_choices(row: Mapping[str, Any], expected: object, question: str) -> tuple[object, Sequence[str], object]:
    listed: Any = row.get("choices", row.get("options"))
    if "correct answer" in row:  # GPQA, whose choices have no order
        listed = [row["correct answer"], *(text for name, text in row.items() if name.startswith("incorrect answer"))]
        Random(question).shuffle(listed)
        return listed, (), row["correct answer"]
    if scores := row.get("target_scores"):  # BIG-Bench
        return list(scores), (), [text for text in scores if scores[text] == max(scores.values())]
    if targets := row.get("mc1_targets"):  # TruthfulQA
        return targets["choices"], (), [index for index, flag in enumerate(targets["labels"]) if flag == 1]
    if "endings" in row:  # HellaSwag
        return row["endings"], (), int(row["label"])
    labels: Sequence[str] = ()
    if isinstance(listed, str):
        listed = [part.strip() for part in listed.split("|")]
    elif isinstance(listed, dict):
        named = cast("dict[str, Any]", listed)  # ARC has {"text": [...], "label": [...]}
        labels = [str(label) for label in named.get("label", () if "text" in named else named)]
        listed = named.get("text") or [*named.values()]
    elif listed and isinstance(listed[0], dict):
        labels, listed = [str(one["label"]) for one in listed], [one["text"] for one in listed]
    return listed, labels, expected


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _read_assertion(match: re.Match[str], text: str, where: str) -> tuple[ScorerName, object]:
    """Return what an `__expected` of promptfoo comes to. Raises InputError: nothing here does."""
    kind, rest = match[1], text[match.end() :].strip()
    if kind is None:
        kinds = "equals, contains, contains-any, regex, is-json, llm-rubric or factuality"
        raise InputError(f"{where}: `__expected` is {text[:40]!r}", f"one that is played: {kinds}")
    if "contains" in kind:
        return "contains", [part.strip() for part in rest.split(",")] if kind.endswith("any") else rest
    return _ASSERTED.get(kind, "judge"), (json.loads(rest) if rest else {}) if kind == "is-json" else rest


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
    numbers = [_read_number(text) for text in answers if len(text) < 60 or "####" in text]
    return "number" if answers and len(numbers) == len(answers) and all(numbers) else "exact"


def _read_number(text: str) -> Result | None:
    answer = read_short_answer(text)
    return answer.result if answer.result and answer.is_bare and answer.result.kind == "number" else None


def _to_letter(value: object, choices: Sequence[str], labels: Sequence[str], where: str) -> str:
    """Return the letter that an answer means: a label, the text of a choice, or its index from 0."""
    if not choices:
        raise InputError(f"{where}: scorer `choice` needs `choices`", '"choices": ["red", "blue"], "answer": "B"')
    letters, answer = [build_label(index) for index in range(len(choices))], clean_text(str(value)).strip()
    bare = answer.strip("()") if labels else answer.strip("()").upper()
    named = dict(zip(labels or letters, letters, strict=False)).get(bare)
    by_text = [letter for letter, choice in zip(letters, choices, strict=True) if choice == answer]
    index = letters[int(answer)] if answer.isdecimal() and int(answer) < len(letters) and not labels else None
    meant = {named, *by_text} - {None} if not labels or named is None else {named}
    meant |= {index} if index and (not meant or isinstance(value, int)) else set()
    if len(meant) != 1:
        problem = "may mean several of the choices" if meant else "is none of the choices"
        raise InputError(f"{where}: the answer {answer[:40]!r} {problem}", f"one of {', '.join(letters)}")
    return str(meant.pop())


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
    """Return whether the text answers the question rightly. Of `judge` and `open`, only the value is known here."""
    value, is_right = normalise(text), False
    match item.scorer:
        case "contains":
            is_right = bool(hits := [normalise(answer) for answer in item.expected if has_words(text, answer)])
            value = hits[0] if hits else value
        case "regex":
            matches = (compile_pattern(pattern).search(text.strip()) for pattern in item.expected)
            is_right = bool(hits := [match for match in matches if match is not None])
            value = hits[0] if hits else value
        case "schema":
            with suppress(FormError):
                value = json.dumps(read_value(text, item.schema or {}), sort_keys=True, ensure_ascii=False)
                is_right = True
        case "choice":
            value = read_choice(text, item.choices)
            is_right = value in item.expected
        case "number" | "exact":
            return _compare(item, text)
        case "judge" | "open":
            pass
    return Score(is_right, value)


def _compare(item: Item, text: str) -> Score:
    """Return whether the text comes to an expected number or text. Of a percentage, 60 and 0.6 are right for 60 %."""
    answer, is_number = read_short_answer(text, graded=True), item.scorer == "number"
    result, value = answer.result, "" if is_number else answer.key
    if result and isinstance(result.value, Fraction):
        value = str(Result("number", result.value * (100 if result.unit == "%" else 1)))
    elif is_number or (result and not answer.is_bare and result.kind == "letter"):
        result = None
    expected = [read_short_answer(text) for text in item.expected]
    texts = () if is_number else (answer.key, normalise(re.split(r"\b(?:is|are|was)\s", text)[-1]))
    is_right = any(one.key in texts or (one.result and result and _agrees(one.result, result)) for one in expected)
    return Score(is_right, value)


def _agrees(expected: Result, result: Result) -> bool:
    if (expected.unit or result.unit) and expected.convert() == result.convert():
        return True
    if not (isinstance(expected.value, Fraction) and isinstance(result.value, Fraction)):
        return (expected.kind, expected.value) == (result.kind, result.value)
    scales = (1, 100, Fraction(1, 100)) if (expected.unit == "%") != (result.unit == "%") else (1,)
    is_same = any(expected.value == scale * result.value for scale in scales)
    return is_same and not (expected.value == result.value and expected.differs(result))
