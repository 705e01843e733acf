"""The table of all error messages in docs/messages.md, read from the source code."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path

from massmem.core import errors

_PACKAGE = Path(errors.__file__).parents[1]
_KINDS = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.MassmemError) and kind is not errors.ConfigError
}
_MIN_LENGTH = 8
"""Characters; a shorter message consists of text from elsewhere."""


def messages_table() -> str:
    """Return one row per message: its text with … for names and numbers, its exit code, what to do about it."""
    messages = {row[0]: row for path in sorted(_PACKAGE.rglob("*.py")) for row in _messages(path)}
    rows = [f"| {text} | {code} | {hint} |" for text, code, hint in sorted(messages.values(), key=_by_first_letter)]
    return "\n".join(["| message | code | what to do |", "|---|---|---|", *rows])


def _messages(path: Path) -> Iterator[tuple[str, int, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _KINDS):
            continue
        if node.args and len((text := _template(node.args[0], constants)).strip("… ")) > _MIN_LENGTH:
            hint = _template(node.args[1], constants) if len(node.args) > 1 else ""
            yield _cell(text), _KINDS[node.func.id].exit_code, _cell("" if hint == "…" else hint)


def _template(node: ast.expr, constants: Mapping[str, ast.expr]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_template(part, constants) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)) | ast.Name(id=name) if name in constants:
            return _template(constants[name], {})
        case ast.Constant(value=int(number)):
            return str(number)
        case _:
            return "…"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _by_first_letter(row: tuple[str, int, str]) -> str:
    return row[0].lstrip("…:'` ").casefold()
