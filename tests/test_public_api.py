"""What a program imports: the names, the examples in the docstrings, the types."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import massmem

ROOT = Path(__file__).parents[1]


def examples(docstring: str | None) -> list[str]:
    """The indented parts of a docstring."""
    parts = re.split(r"^(?=\S)", docstring or "", flags=re.MULTILINE)
    indented = ["".join(part.splitlines(keepends=True)[1:]) for part in parts]
    return [textwrap.dedent(part) for part in indented if re.search(r"^ {4}", part, re.MULTILINE)]


def run(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_example_answers_and_is_as_short_as_it_says(tmp_path: Path, home: Path):
    program = examples(massmem.__doc__)[0]
    body = program[program.index("async def main") :].splitlines()[1:]
    assert len([line for line in body[: body.index("")] if line.strip()]) == 5
    ran = run(program, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("massmem asks several agents at once.")
    assert (home / ".massmem" / "sessions.json").exists()


def test_the_example_of_the_memory(tmp_path: Path):
    head = """
        import asyncio, os
        from massmem import (ConversationMemory, Message, PersistentMemory, Selection, load_config, massmem_home,
            open_memory, open_store)
        config, _ = load_config("@examples/scripted")
        async def main():
    """
    body = textwrap.indent(examples(massmem.__doc__)[1], "    ")
    ran = run(f"{textwrap.dedent(head)}{body}\n    print(list(memories))\nasyncio.run(main())", tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "['Where is my order?']\n\n[]\n"  # the agent remembers nothing


def test_names():
    assert sorted(massmem.__all__) == massmem.__all__
    assert set(massmem.__all__) <= set(dir(massmem))
    for name in massmem.__all__:
        assert getattr(massmem, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Sesion'"):
        _ = massmem.Sesion  # pyright: ignore[reportAttributeAccessIssue]


def test_importing_the_package_loads_nothing_else_of_it():
    code = "import sys, massmem; print(*(m for m in sys.modules if m.startswith('massmem')))"
    assert run(code, ROOT).stdout.split() == ["massmem"]


@pytest.mark.full
def test_the_types_are_shipped_and_checkers_see_them(tmp_path: Path):
    assert (ROOT / "massmem" / "py.typed").is_file()
    program = f"{examples(massmem.__doc__)[0]}\nreveal_type(load_config)\nreveal_type(Session.ask)\n"
    (tmp_path / "example.py").write_text(program)
    pyright = Path(sys.executable).with_name("pyright")
    ran = subprocess.run(
        [str(pyright), "--pythonpath", sys.executable, str(tmp_path / "example.py")],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "0 errors" in ran.stdout, ran.stdout
    assert re.search(
        r'"load_config" is "\(path: Path \| str, environ: .*-> tuple\[TeamConfig, list\[str\]\]"', ran.stdout
    )
