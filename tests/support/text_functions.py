"""Finds the public functions of the product that take a text, and texts that are hard for them."""

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, get_origin
from zipfile import BadZipFile

from massmem.core.errors import MassmemError
from tests.support.patterns import import_modules

PACKAGES = ("core", "memory", "recording", "tools", "render", "export", "store.encoding", "session.imports")
_BODIES = (
    *(" ", "\t", "\n", "\u3000", ".", "a", "A", "7", '"', "'", "[", "{", "<", "|", "`", "#", "*", "_", "-", "(", "@"),
    *("\u0301", "\u5929", "\u3042", "\U0001f468\u200d", "\ud800", "Ab cd ", "My name is Ann and I live in Bern. "),
    *("the port is 8080. ", "```\nx\n", "<think>", '{"a": ', '["a", ', "a line\n", "a1-b_", "a.", "'a\" ", "ABC "),
    *("http://a.b/c?d ", "- a\n  - b\n", "| a | b |\n", "user: hi\n", "[From a Turn 1] ", "a@b.c ", "1,234.5 "),
    *("sk-abcdefghijklmnopqrst ", "$x$ \\frac{a}{b} ", "**a** _b_ ", "![a](b) ", "&amp;", "%20"),
)


@dataclass(frozen=True, slots=True)
class TextFunction:
    """A function, and which of its arguments is the text."""

    name: str
    call: Callable[..., object]
    argument: str
    others: dict[str, object]
    is_bytes: bool

    def apply(self, text: str) -> None:
        """Call it. A text may be refused: only the time counts. A call that is wrong in itself measures nothing."""
        value = text.encode("utf-8", "surrogatepass") if self.is_bytes else text
        try:
            result = self.call(**{**self.others, self.argument: value})
            if inspect.isgenerator(result):
                list(itertools.islice(result, 1_000_000))
        except (MassmemError, ValueError, LookupError, RecursionError, BadZipFile):
            pass


@cache
def find_text_functions() -> list[TextFunction]:
    return list(_list_functions())


def make_texts() -> Iterator[tuple[str, Callable[[int], str]]]:
    """Yield a name and a maker of texts of a length."""
    for body in _BODIES:
        yield repr(body), lambda size, body=body: body * (size // len(body))
    yield "blanks within", lambda size: f"Is it{' ' * size}so?"
    yield "different numbers", lambda size: " ".join(map(str, range(size // 5)))
    yield "different words", lambda size: " ".join(map(_spell, range(size // 5)))


def _spell(number: int) -> str:
    return "".join(chr(97 + int(digit)) for digit in str(number))


def _list_functions() -> Iterator[TextFunction]:
    for module in import_modules():
        if not module.__name__.removeprefix("massmem.").startswith(PACKAGES):
            continue
        for name, value in vars(module).items():
            if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_"):
                yield from _list_arguments(f"{module.__name__}.{name}", value)


def _list_arguments(name: str, function: FunctionType) -> Iterator[TextFunction]:
    if inspect.iscoroutinefunction(function):
        return
    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except NameError:  # of a type that is imported for checks alone
        return
    for text in parameters:
        required = [p for p in parameters if p is not text and p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
        others = {p.name: _fill(p.annotation) for p in required}
        if text.annotation in (str, bytes) and None not in others.values():
            yield TextFunction(f"{name}({text.name})", function, text.name, others, text.annotation is bytes)


def _fill(annotation: Any) -> object:
    """Return an ordinary value of a type, None for a type that has none."""
    values: dict[str, object] = {"str": "word", "int": 100, "float": 100.0, "bool": False}
    name = getattr(annotation, "__name__", "")
    if name in values:
        return values[name]
    if get_origin(annotation) is re.Pattern:
        return re.compile("word")
    if str(annotation).endswith("[str]"):
        return {"word", "other"} if issubclass(get_origin(annotation), Set) else ["word", "other"]
    return len if "Callable" in str(annotation) else None
