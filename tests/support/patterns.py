"""Finds every expression of the product, and makes texts that are hard for it."""

import ast
import importlib
import pkgutil
import re
import string
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import massmem

_parser: Any = importlib.import_module("re._parser")
_constants: Any = importlib.import_module("re._constants")
_WAYS = {"match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"}
_FLAGS = {name: getattr(re, name) for name in ("IGNORECASE", "MULTILINE", "DOTALL", "ASCII", "VERBOSE")}
ALPHABET = (
    *(" ", "\t", "\n", "\r", "\u3000", "\u00a0", "\u2003", "\x00", "\x1b", "\x7f", "\u0301", "\u200d", "\ufeff"),
    *("a", "A", "0", "e", "x", "s", "\u00e9", "\u5929", "\u3042", "\U0001f600", "\ud800", "\uff0e", "\u3002"),
    *string.punctuation,
)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of the product, and the ways in which it is applied."""

    where: str
    pattern: re.Pattern[Any]
    ways: frozenset[str]

    @property
    def is_anchored(self) -> bool:
        """Whether it is tried at the beginning of a text alone."""
        return bool(self.ways) and self.ways <= {"match", "fullmatch"}

    def apply(self, text: str) -> None:
        """Go through the text as the product does."""
        subject: Any = text.encode("utf-8", "surrogatepass") if isinstance(self.pattern.pattern, bytes) else text
        if self.is_anchored:
            for way in self.ways:
                getattr(self.pattern, way)(subject)
        else:
            self.pattern.sub(subject[:0], subject)


def import_modules() -> Iterator[ModuleType]:
    """Import and yield every module of the product but the migrations, which run on their own."""
    for info in pkgutil.walk_packages(massmem.__path__, "massmem."):
        if not info.name.startswith("massmem.store.migrations.") and info.name != "massmem.__main__":
            yield importlib.import_module(info.name)


@cache
def find_expressions() -> list[Expression]:
    """Return all expressions: those in the values of modules, and those written where they are applied."""
    expressions: dict[tuple[Any, int], Expression] = {}
    ways: dict[tuple[str, str], set[str]] = {}
    modules = list(import_modules())
    for module in modules:
        tree = ast.parse(Path(str(module.__file__)).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _WAYS:
                name = ast.unparse(node.value).rpartition(".")[2]
                # What begins with an underline is of this module; other modules use the rest, too.
                ways.setdefault((module.__name__ if name.startswith("_") else "", name), set()).add(node.attr)
            for expression in _read_call(module, node):
                expressions.setdefault((expression.pattern.pattern, expression.pattern.flags), expression)
    for module in modules:
        for name, value in vars(module).items():
            for pattern in _walk(value, 0):
                key = (pattern.pattern, pattern.flags)
                used = ways.get((module.__name__ if name.startswith("_") else "", name), ())
                earlier = expressions.get(key)
                if earlier is None or not earlier.ways:
                    is_single = isinstance(value, re.Pattern)
                    expressions[key] = Expression(
                        f"{module.__name__}.{name}", pattern, frozenset(used if is_single else ())
                    )
    return list(expressions.values())


def _walk(value: object, depth: int) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, str) and depth and re.search(r"\\[bsdwSW]|\.[*+{]|\(\?", value) and len(value) < 500:
        with suppress(re.error):  # a list of texts that are used as expressions, or only look like them
            yield re.compile(value, re.IGNORECASE | re.DOTALL)
    elif isinstance(value, dict) and depth < 4:
        for part in chain.from_iterable(cast("dict[object, object]", value).items()):
            yield from _walk(part, depth + 1)
    elif isinstance(value, tuple | list | set | frozenset) and depth < 4:
        for part in islice(cast("Iterable[object]", value), 1_000):
            yield from _walk(part, depth + 1)


def _read_call(module: ModuleType, node: ast.AST) -> Iterator[Expression]:
    """Yield the expressions of `re.search(PATTERN, ...)`; one that stands in a variable has a value in its module."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=way), args=[first, *rest]) if way in _WAYS:
            flags = 0
            for argument in [*rest[1:], *(keyword.value for keyword in node.keywords)]:
                flags |= sum(_FLAGS[name] for name in re.findall(r"re\.([A-Z]+)", ast.unparse(argument)))
            for text in _evaluate(module, first):
                yield Expression(f"{module.__name__}:{node.lineno}", re.compile(text, flags), frozenset({way}))
        case _:
            pass


def _evaluate(module: ModuleType, node: ast.expr) -> list[Any]:
    """Return the patterns that an argument stands for; names of the function are taken for one word."""
    names = {name.id: getattr(module, name.id, "word") for name in ast.walk(node) if isinstance(name, ast.Name)}
    try:
        value = eval(compile(ast.Expression(node), "pattern", "eval"), {**vars(module), **names})
    except (AttributeError, TypeError, KeyError):
        return []
    return [value] if isinstance(value, str | bytes) else []


def make_texts(pattern: re.Pattern[Any], most: int) -> list[Callable[[int], str]]:
    """Return makers of texts of a length: each repetition is fed what it repeats, and then does not end.

    most: of more texts some are left out, evenly.
    """
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    tree: Any = _parser.parse(source, pattern.flags)
    pieces: dict[tuple[str, str, str], None] = {("", sign, ""): None for sign in ALPHABET}
    whole = _sample(tree)
    pieces["", whole or "a", ""] = None
    pieces["", whole[:-1] or "a", "\x00"] = None
    for before, bodies in _find_repeats(tree, ""):
        for body in bodies:
            for tail in ("", "\x00", "!", "\n"):
                pieces[before, body, tail] = None
            pieces["", before + body, "\x00"] = None
            pieces["", before + body + body, "\x00"] = None
            pieces["", body + before, "\x00"] = None
            pieces["", before or body, "\x00"] = None
    return [_make_maker(*piece) for piece in list(pieces)[:: len(pieces) // most + 1]]


def _make_maker(before: str, body: str, tail: str) -> Callable[[int], str]:
    def make(length: int) -> str:
        return before + body * (length // len(body)) + tail

    make.__name__ = f"{before[-30:]!r} + {body[:30]!r} * n + {tail!r}"
    return make


def _sample(nodes: Any) -> str:
    """Return a short text that these nodes match, more or less: what looks around is left out."""
    return "".join(_sample_node(kind, value) for kind, value in nodes)


def _sample_node(kind: Any, value: Any) -> str:
    match str(kind):
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL":
            return "b" if value == ord("a") else "a"
        case "ANY":
            return "a"
        case "IN":
            return next(iter(_signs_in(value)), "")
        case "BRANCH":
            return _sample(value[1][0])
        case "SUBPATTERN":
            return _sample(value[3])
        case "ATOMIC_GROUP":
            return _sample(value)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _sample(value[2]) * max(1, min(value[0], 50))
        case "GROUPREF_EXISTS":
            return _sample(value[1])
        case _:
            return ""


def _signs_in(items: Any) -> Iterator[str]:
    """Yield signs of a class, of different kinds."""
    negated = bool(items) and items[0][0] is _constants.NEGATE
    one = re.compile("|".join(_write_item(*item) for item in items if item[0] is not _constants.NEGATE))
    signs = [sign for sign in ("a", "0", " ", *ALPHABET) if (one.fullmatch(sign) is None) == negated]
    literal = [chr(value) for kind, value in items if kind is _constants.LITERAL] if not negated else []
    ranges = [chr(value[0]) for kind, value in items if kind is _constants.RANGE] if not negated else []
    yield from dict.fromkeys([*signs, *literal[:3], *ranges[:3]])


def _write_item(kind: Any, value: Any) -> str:
    match str(kind):
        case "LITERAL":
            return re.escape(chr(value))
        case "RANGE":
            return f"[{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}]"
        case _:  # CATEGORY_SPACE, CATEGORY_NOT_WORD, ...
            sign = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(value).rpartition("_")[2]]
            return "\\" + (sign.upper() if "NOT" in str(value) else sign)


def _find_repeats(nodes: Any, before: str) -> Iterator[tuple[str, list[str]]]:
    """Yield what stands before each repetition, and what it repeats."""
    for kind, value in nodes:
        match str(kind):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                body = value[2]
                if value[1] > 20:
                    yield before, _list_bodies(body)
                yield from _find_repeats(body, before)
            case "BRANCH":
                for branch in value[1]:
                    yield from _find_repeats(branch, before)
            case "SUBPATTERN":
                yield from _find_repeats(value[3], before)
            case "ATOMIC_GROUP":
                yield from _find_repeats(value, before)
            case "ASSERT" | "ASSERT_NOT":
                yield from _find_repeats(value[1], before)
            case "GROUPREF_EXISTS":
                for branch in filter(None, value[1:]):
                    yield from _find_repeats(branch, before)
            case _:
                pass
        before += _sample_node(kind, value)


def _list_bodies(body: Any) -> list[str]:
    if len(body) == 1 and str(body[0][0]) == "IN":
        return list(_signs_in(body[0][1]))[:8]
    if len(body) == 1 and str(body[0][0]) in ("ANY", "NOT_LITERAL"):
        return ["a", " ", "\x00", "\n"]
    return [_sample(body) or "a"]
