"""The budgets of the design, held by a machine. Layers and cycles are held by import-linter in scripts/check."""

import ast
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "massmem"
FILES = sorted(p for p in PACKAGE.rglob("*.py") if "versions" not in p.parts)
TREES = {p: ast.parse(p.read_text()) for p in FILES}

HEAVY = {
    "openai", "anthropic", "xllamacpp", "mem0", "qdrant_client", "qdrant_edge", "sqlalchemy", "alembic", "aiosqlite",
    "psycopg", "redis", "fastapi", "numpy", "onnxruntime", "tokenizers", "wordllama", "tiktoken", "httpx2", "mcp",
    "prompt_toolkit",
}  # fmt: skip

ACROSS = {
    "open_memory", "visibility_machine",  # the whole memory
    "remote", "renderers",  # what siblings have in common
    "bench", "bench_context", "bench_memory", "shipped_configs",  # outside the package
}  # fmt: skip
"""Tests below tests/unit that are named after no module."""

BROAD_EXCEPT_IN = {"cli/main.py", "turn/coordinator.py", "server/app.py"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[Path, Function]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield path, node


def length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def percentile(values: list[int], share: float) -> int:
    return sorted(values)[int(share * (len(values) - 1))]


def test_files_are_short():
    lines = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in FILES}
    assert {p: n for p, n in lines.items() if n > 400} == {}
    assert statistics.median(n for n in lines.values() if n > 0) <= 120


def test_functions_are_short():
    lengths = {f"{p.relative_to(ROOT)}:{f.name}": length(f) for p, f in functions()}
    assert {name: n for name, n in lengths.items() if n > 60} == {}
    values = list(lengths.values())
    assert statistics.median(values) <= 10
    assert percentile(values, 0.9) <= 30


def test_functions_outside_the_command_line_take_six_parameters_at_most():
    many: dict[str, int] = {}
    for path, function in functions():
        if "cli" in path.parts:
            continue
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        count = len([n for n in names if n not in {"self", "cls"}])
        if count > 6:
            many[f"{path.relative_to(ROOT)}:{function.name}"] = count
    assert many == {}


def test_broad_excepts_stand_in_three_places_only():
    found: list[str] = []
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                names = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else {"Exception"}
                reraises = any(isinstance(n, ast.Raise) and n.exc is None for n in ast.walk(node))
                if names & {"Exception", "BaseException"} and not reraises:
                    found.append(str(path.relative_to(PACKAGE)))
    assert set(found) <= BROAD_EXCEPT_IN
    assert len(found) == len(set(found)), "one each"


def test_nothing_is_suppressed_broadly():
    calls = [n for tree in TREES.values() for n in ast.walk(tree) if isinstance(n, ast.Call)]
    suppressed = [ast.unparse(call) for call in calls if ast.unparse(call.func).endswith("suppress")]
    assert suppressed
    assert [text for text in suppressed if re.search(r"\b(Base)?Exception\b", text)] == []


def test_there_are_four_protocols_at_most():
    found = [
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any("Protocol" in re.split(r"\W", ast.unparse(b)) for b in node.bases)
    ]
    assert found
    assert set(found) <= {"ChatProvider", "PersistentMemory", "SessionStore", "Renderer"}


def test_no_file_is_a_drawer():
    assert [p for p in FILES if p.stem in {"utils", "util", "helpers", "helper", "common", "misc"}] == []


def test_unit_tests_mirror_the_package():
    """x/test_y.py is about massmem/x/y.py, or about the package x; also as x/test_x_y.py, for names are unique."""
    strays: list[str] = []
    for path in (ROOT / "tests" / "unit").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests" / "unit")
        name = path.stem.removeprefix("test_")
        short = name.removeprefix(f"{folder.name}_")
        modules = {PACKAGE / folder / f"{n}.py" for n in (name, short)}
        if not (any(m in TREES for m in modules) or name == folder.name or name in ACROSS):
            strays.append(str(path.relative_to(ROOT)))
    assert strays == []


def test_test_modules_have_names_of_their_own():
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_tests_replace_almost_nothing():
    """Mocks and patched attributes: 5 per 100 tests at most. Environment variables and folders are no mocks."""
    texts = [p.read_text() for p in (ROOT / "tests").rglob("*.py") if p != Path(__file__)]
    mocks = sum(len(re.findall(r"\bMock\(|MagicMock|mock\.patch|monkeypatch\.setattr", t)) for t in texts)
    tests = sum(len(re.findall(r"^\s*(?:async )?def test_", t, re.MULTILINE)) for t in texts)
    assert mocks <= tests * 0.05


@pytest.mark.parametrize(
    "code",
    ["import massmem", "import massmem.cli.main as m; m.main(['--help'])"],
    ids=["import massmem", "massmem --help"],
)
def test_start_up_loads_no_heavy_package(code: str):
    program = (
        "import sys\n"
        f"try:\n    {code.replace('; ', chr(10) + '    ')}\n"
        "except SystemExit:\n    pass\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stderr.strip() == "[]"
