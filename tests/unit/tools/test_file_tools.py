"""list_files, read_file and search_text: pages, matches, what is said of what is not shown, and bad input."""

import asyncio
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import FolderConfig
from massmem.core.calls import find_tool_name
from massmem.tools import file_tools
from massmem.tools.file_tools import MAX_MATCHES, MAX_ROWS, PAGE, FileTools


def tools_of(*roots: Path) -> FileTools:
    return FileTools([FolderConfig(path=str(root)) for root in roots])


async def call(tools: FileTools, name: str, **arguments: Any) -> str:
    result = await tools.call(name, arguments)
    assert not result.failed, result.text
    return result.text


async def refuse(tools: FileTools, name: str, **arguments: Any) -> str:
    result = await tools.call(name, arguments)
    assert result.failed, result.text
    return result.text


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())


def read_lines(text: str) -> dict[int, str]:
    """Line -> text, of a page."""
    lines = (line.partition(": ") for line in text.splitlines() if line[:1].isdecimal())
    return {int(number): line for number, _, line in lines}


async def read_whole(tools: FileTools, path: str) -> tuple[dict[int, str], int]:
    """Follow what each page says of how to go on; return all lines, and the number of pages."""
    arguments: dict[str, int] = {}
    lines, pages = dict[int, str](), 0
    while pages < 100:
        page, pages = await call(tools, "read_file", path=path, **arguments), pages + 1
        for number, line in read_lines(page).items():
            lines[number] = lines.get(number, "") + line
        if not page.endswith("goes on]"):
            return lines, pages
        steps = page.rpartition("\n")[2].removesuffix(" goes on]").strip("[").split(", ")
        arguments = {name: int(value) for name, value in (step.split("=") for step in steps)}
    raise AssertionError("it never ends")


async def test_pages_of_a_long_file_join_to_the_whole(tmp_path: Path):
    lines = [f"line {number} " + "x" * (number % 90) for number in range(1, 5_001)]
    long = "y" * (2 * PAGE + 77)
    write(tmp_path, {"a.txt": "\n".join(lines) + "\n", "long.txt": f"one\n{long}\nthree", "crlf.txt": "a\r\nb\r\n"})
    tools = tools_of(tmp_path)
    assert await read_whole(tools, "a.txt") == (dict(enumerate(lines, 1)), 10)
    assert await read_whole(tools, "long.txt") == ({1: "one", 2: long, 3: "three"}, 4)
    assert read_lines(await call(tools, "read_file", path="crlf.txt")) == {1: "a", 2: "b"}
    part = await call(tools, "read_file", path="a.txt", from_line=4_990, lines=3)
    assert part.startswith("[a.txt, lines 4,990 to 4,992 of 5,000 lines]\n4990: line 4990")
    assert "has 5,000 lines" in await refuse(tools, "read_file", path="a.txt", from_line=5_001)


async def test_file_that_grows_or_shrinks_between_pages_has_a_note(tmp_path: Path):
    write(tmp_path, {"log.txt": "one\ntwo\n", "empty": ""})
    tools = tools_of(tmp_path)
    assert "changed" not in await call(tools, "read_file", path="log.txt")
    assert "changed" not in await call(tools, "read_file", path="log.txt")
    with (tmp_path / "log.txt").open("a") as log:
        log.write("three\n")
    page = await call(tools, "read_file", path="log.txt", from_line=3)
    assert page == "[log.txt, lines 3 to 3 of 3 lines; it has changed since it was read last]\n3: three"
    (tmp_path / "log.txt").write_text("one\n")
    assert "log.txt has 1 lines" in await refuse(tools, "read_file", path="log.txt", from_line=3)
    assert await call(tools, "read_file", path="empty") == "[empty is empty]"


async def test_file_that_is_written_while_it_is_read_ends(tmp_path: Path):
    write(tmp_path, {"log.txt": ""})
    tools, stop = tools_of(tmp_path), threading.Event()

    def grow() -> None:
        with (tmp_path / "log.txt").open("ab", buffering=0) as log:
            while not stop.is_set() and log.tell() < 400_000_000:
                log.write(b"a line of the log\n" * 50_000)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        pages = [await call(tools, "read_file", path="log.txt") for _ in range(10)]
        assert "a line of the log" in pages[-1] or "is empty" in pages[-1]
        assert max(map(len, pages)) < 2 * PAGE
        assert (await tools.call("search_text", {"pattern": "log"})).text
    finally:
        stop.set()
        thread.join()


async def test_file_too_large_to_be_held_is_read_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_tools, "MAX_WHOLE", 100_000)
    monkeypatch.setattr(file_tools, "_PIECE", 10_000)
    lines = [f"line {number}" for number in range(1, 30_001)]
    write(tmp_path, {"big.txt": "\n".join(lines), "one.txt": "z" * 200_000, "big.bin": b"\0" * 200_000})
    tools = tools_of(tmp_path)
    assert (await read_whole(tools, "big.txt"))[0] == dict(enumerate(lines, 1))
    assert (await read_whole(tools, "one.txt"))[0] == {1: "z" * 200_000}
    assert read_lines(await call(tools, "read_file", path="big.txt", from_line=29_999)) == {
        29_999: "line 29999",
        30_000: "line 30000",
    }
    assert "big.txt has 318,893 bytes" in await refuse(tools, "read_file", path="big.txt", from_line=40_000)
    assert "and is no text" in await refuse(tools, "read_file", path="big.bin")
    assert "not searched: 2 larger than 100,000 bytes" in await call(tools, "search_text", pattern="z")


async def test_documents_are_read_as_text_and_pictures_are_not(tmp_path: Path):
    cells = [
        {"cell_type": "markdown", "source": ["# Pumps"]},
        {"cell_type": "code", "source": "run(17)", "outputs": []},
    ]
    write(
        tmp_path,
        {
            "n.ipynb": json.dumps({"cells": cells, "metadata": {}}),
            "u.txt": "größe".encode("utf-16"), "w.txt": "Größe und Maß".encode("cp1252"), "page.html": "<p>Hall</p>",
            "data": bytes(range(256)) * 40, "pic": b"\x89PNG\r\n\x1a\n" + b"x" * 50, "bad.pdf": b"%PDF-1.7 nothing",
        },
    )  # fmt: skip
    tools = tools_of(tmp_path)
    assert read_lines(await call(tools, "read_file", path="n.ipynb"))[1] == "# Pumps"
    assert "1: größe" in await call(tools, "read_file", path="u.txt")
    page = await call(tools, "read_file", path="w.txt")
    assert "read as Windows-1252" in page and "1: Größe und Maß" in page
    assert "1: <p>Hall</p>" in await call(tools, "read_file", path="page.html")
    assert "is no text" in await refuse(tools, "read_file", path="data")
    assert "picture" in await refuse(tools, "read_file", path="pic")
    assert "damaged PDF" in await refuse(tools, "read_file", path="bad.pdf")
    matches = await call(tools, "search_text", pattern="Größe|größe")
    assert "u.txt:1: größe" in matches and "w.txt:1: Größe und Maß" in matches
    assert "3 documents, which read_file shows as text" in matches


async def test_searches_say_where_and_how_much(tmp_path: Path):
    many = "\n".join(f"retry {number}" for number in range(1, 451))
    write(tmp_path, {"src/a.py": "x\ndef retry(n):\n", "src/b.md": many, "c.txt": "p(q " + "w" * 10_000 + " RETRY now"})
    tools = tools_of(tmp_path)
    assert (
        await call(tools, "search_text", pattern=r"def \w+\(") == "src/a.py:2: def retry(n):\n[1 lines in 1 of 3 files]"
    )
    matches = await call(tools, "search_text", pattern="(?i)retry", path_glob="*.md")
    assert matches.startswith("src/b.md:1: retry 1\n")
    assert matches.count("\n") == MAX_MATCHES
    assert "450 lines in 1 of 1 files; these are 1 to 200; start=201 goes on" in matches
    rest = await call(tools, "search_text", pattern="retry", path_glob="src/b.md", start=401)
    assert rest.count("\n") == 50 and "goes on" not in rest
    long = await call(tools, "search_text", pattern="RETRY")
    assert long.startswith("c.txt:1: p(q www") and "w…w" in long and "w RETRY now" in long and len(long) < 500
    literal = await call(tools, "search_text", pattern="p(q")
    assert literal.startswith("c.txt:1: p(q") and "this is no pattern (missing ): p(q)" in literal
    assert "nothing in 3 files" in await call(tools, "search_text", pattern="^def$")
    assert "x\n" not in await call(tools, "search_text", pattern=r"(x+x+)+y")


async def test_ten_megabytes_of_results_stay_within_a_page(tmp_path: Path):
    line = "needle " + "hay " * 200 + "\n"
    write(tmp_path, {f"f{number}.txt": line * 1_250 for number in range(10)})
    matches = await call(tools_of(tmp_path), "search_text", pattern="needle")
    assert len(matches) < MAX_MATCHES * 400
    assert "10,000 lines" in matches and "goes on" in matches


async def test_lists_count_what_is_too_much_to_name(tmp_path: Path):
    write(tmp_path, {f"big/d{number % 3}/f{number}.txt": "" for number in range(MAX_ROWS + 1)})
    write(tmp_path, {f"flat/f{number:04}": "" for number in range(1_100)})
    write(tmp_path, {"[id].tsx": "", "x.md": "", "big/d1/y.md": ""})
    tools = tools_of(tmp_path)
    listed = await call(tools, "list_files")
    assert listed.splitlines()[:4] == ["[id].tsx", "big/ (502 files)", "flat/ (1,100 files)", "x.md"]
    assert "1,604 files; those of a folder are counted" in listed
    assert (await call(tools, "list_files", path_glob="big/")).splitlines()[1] == "big/d1/ (168 files)"
    assert (await call(tools, "list_files", path_glob="big/d1")).count("\n") == 168
    assert (await call(tools, "list_files", path_glob="*.md")).splitlines()[:2] == ["big/d1/y.md", "x.md"]
    for path_glob in ("[id].tsx", "./[id].tsx", f"{tmp_path}/[id].tsx"):
        assert (await call(tools, "list_files", path_glob=path_glob)).startswith("[id].tsx\n[1 files")
    flat = await call(tools, "list_files", path_glob="flat")
    assert "lines 1 to 500 of 1,100; start=501 goes on" in flat
    last = await call(tools, "list_files", path_glob="flat", start=1_001)
    assert last.splitlines()[-2] == "flat/f1099" and "goes on" not in last
    assert "no file here has such a path" in await call(tools, "list_files", path_glob="no/where")


async def test_paths_in_several_folders_begin_with_their_names(tmp_path: Path):
    write(tmp_path, {"one/a.txt": "alpha", "two/a.txt": "beta", "x/one/b.txt": "gamma", "one/AGENTS.md": "Rule one."})
    tools = tools_of(tmp_path / "one", tmp_path / "two", tmp_path / "x/one")
    listed = await call(tools, "list_files")
    assert listed.splitlines()[:-1] == ["one/AGENTS.md", "one/a.txt", "two/a.txt", "one~2/b.txt"]
    assert "1: gamma" in await call(tools, "read_file", path="one~2/b.txt")
    assert "1: beta" in await call(tools, "read_file", path=str(tmp_path / "two/a.txt"))
    assert "paths begin with one, two, one~2" in await refuse(tools, "read_file", path="a.txt")
    assert "is not in the folder" in await refuse(tools, "read_file", path="one/../../two/a.txt")
    assert "two/a.txt:1: beta" in await call(tools, "search_text", pattern="a", path_glob="two")
    assert "one, two, one~2" in tools.specs[0].description
    assert await tools.read_notes(8_000) == "one/AGENTS.md:\nRule one."


async def test_odd_calls_get_a_clear_word(tmp_path: Path):
    write(tmp_path, {"a.txt": "alpha"})
    tools = tools_of(tmp_path)
    assert "read_file needs the argument 'path'" in await refuse(tools, "read_file")
    assert "has no argument 'how'; its arguments: path, from_line" in await refuse(tools, "read_file", how="a.txt")
    for odd in (0, -1, True, 1.5, "x", 10**15):
        assert "from_line is a whole number" in await refuse(tools, "read_file", path="a.txt", from_line=odd)
    assert "path is a text" in await refuse(tools, "read_file", path=["a.txt"])
    assert "1: alpha" in await call(tools, "read_file", path="./a.txt", from_line="1", lines=None)
    assert "cannot be searched for" in await refuse(tools, "search_text", pattern="(" * 3_000)
    for odd in ("!a.txt", "#x", "\\", "[", "**", " ", "..", "\ud800", "\0"):
        assert (await tools.call("list_files", {"path_glob": odd})).text
        assert (await tools.call("search_text", {"path_glob": odd, "pattern": "\ud800"})).text
        assert (await tools.call("read_file", {"path": odd})).failed


async def test_arguments_of_other_coding_agents_are_understood(tmp_path: Path):
    write(tmp_path, {"src/a.py": "def f():\n    return RETRY\n\nx = 1\n", "src/b.ts": "retry", "c.tsx": "retry"})
    tools = tools_of(tmp_path)
    page = await call(tools, "read_file", file_path="src/a.py", offset=2, limit=1)
    assert page.splitlines()[1:] == ["2:     return RETRY", "[from_line=3 goes on]"]
    assert read_lines(await call(tools, "read_file", target_file="src/a.py", start_line=0, end_line=2)).keys() == {1, 2}
    assert read_lines(await call(tools, "read_file", path="src/a.py", from_line=2, to_line=3)).keys() == {2, 3}
    assert "to_line is from_line or more" in await refuse(tools, "read_file", path="src/a.py", from_line=3, to_line=2)
    around = await call(
        tools, "search_text", pattern="retry", path="src", glob="*.py", **{"-i": True, "-C": 1, "-n": True}
    )
    assert around.splitlines()[:-1] == [
        "src/a.py-1- def f():", "src/a.py:2:     return RETRY", "src/a.py-3- ",
    ]  # fmt: skip
    last = await call(tools, "search_text", pattern="x = 1", context=5, include="src/a.py")
    assert last.splitlines()[3:-1] == ["src/a.py:4: x = 1"], "nothing stands behind the last line"
    assert "c.tsx" not in around and "src/b.ts" not in around
    assert "src/a.py" not in await call(tools, "search_text", query="retry", ignore_case="false", context=0)
    assert (await call(tools, "list_files", pattern="*.{ts,tsx}")).splitlines()[:-1] == ["c.tsx", "src/b.ts"]
    assert (await call(tools, "list_files", path=".", pattern="*.py")).splitlines()[:-1] == ["src/a.py"]


async def test_found_lines_keep_their_indentation_and_their_start(tmp_path: Path):
    write(tmp_path, {"a.py": f"\tif x:\n        {'long_name + ' * 9}needle\r\n"})
    lines = await call(tools_of(tmp_path), "search_text", pattern="needle|if")
    assert lines.splitlines()[:2] == ["a.py:1: \tif x:", f"a.py:2:         {'long_name + ' * 9}needle"]


async def test_many_found_lines_with_context_go_on_where_they_stopped(tmp_path: Path):
    write(tmp_path, {f"{name}.txt": "needle\nhay\n" * 60 for name in "ab"})
    tools, start, numbers = tools_of(tmp_path), 1, list[str]()
    while start:
        page = await call(tools, "search_text", pattern="needle", context=1, start=start)
        numbers += [line.rpartition(":")[0] for line in page.splitlines() if line.endswith(": needle")]
        start = int(page.rpartition("start=")[2].split()[0]) if "goes on" in page else 0
    assert len(numbers) == len({*numbers}) == 120


async def test_path_that_is_nearly_right_is_read_and_another_is_answered_with_the_nearest(tmp_path: Path):
    repo = tmp_path / "repo"
    write(
        repo,
        {
            "turn/x.py": "one",
            "src/foo.py": "two",
            "a/same.py": "3",
            "b/same.py": "4",
            ".env": "hush",
            "src/.env": "hush",
        },
    )
    write(tmp_path, {"outside.py": "hush"})
    tools = tools_of(repo)
    for path in ("/turn/x.py", "repo/turn/x.py", "/repo/turn/x.py", "./repo/turn/x.py", "turn/x.py"):
        assert await call(tools, "read_file", path=path) in ("1: one", "[this is turn/x.py]\n1: one"), path
    assert await call(tools, "read_file", path="x.py") == "[this is turn/x.py]\n1: one"
    assert await refuse(tools, "read_file", path="src/fo.py") == "there is no src/fo.py; nearest: src/foo.py"
    assert await refuse(tools, "read_file", path="same.py") == "there is no same.py; nearest: a/same.py, b/same.py"
    assert await refuse(tools, "read_file", path="old/x.py") == "there is no old/x.py; nearest: turn/x.py"
    assert await refuse(tools, "read_file", path="zzz") == "there is no zzz"
    assert "is a folder: list_files" in await refuse(tools, "read_file", path="repo")
    for path_glob in ("repo/turn", "/turn/x.py", "repo/turn/*.py"):
        assert (await call(tools, "list_files", path_glob=path_glob)).startswith("turn/x.py\n")
    # Neither reaches what is outside, or what may hold secrets.
    for path in (
        "/.env",
        "repo/.env",
        ".env",
        "/src/.env",
        "outside.py",
        "../outside.py",
        "/../outside.py",
        "/repo/../outside.py",
    ):
        refusal = await refuse(tools, "read_file", path=path)
        assert "hush" not in refusal and "nearest: .env" not in refusal and "nearest: src/.env" not in refusal, path
    for glob in ("../*", "../{outside,x}.py", str(tmp_path / "*"), ".env", "{.env,x.env}", "**/.env", "repo/.env"):
        assert "hush" not in await call(tools, "search_text", pattern="hush", glob=glob), glob
        assert ".env\n" not in await call(tools, "list_files", glob=glob), glob


async def test_folder_in_the_folder_of_its_own_name_is_meant_before_the_folder(tmp_path: Path):
    write(tmp_path / "repo", {"repo/x.py": "inner", "x.py": "outer"})
    tools = tools_of(tmp_path / "repo")
    assert await call(tools, "read_file", path="repo/x.py") == "1: inner"
    assert await call(tools, "read_file", path="x.py") == "1: outer"


def test_tools_are_understood_by_the_names_of_other_coding_agents():
    own = ("list_files", "read_file", "search_text", "vote", "mcp__web__search")
    named = {"grep": "search_text", "functions.Grep": "search_text", "Read": "read_file", "list_dir": "list_files"}
    assert {name: find_tool_name(name, own) for name in named} == named
    assert find_tool_name("search", own) == "mcp__web__search"
    assert find_tool_name("grep", ("vote",)) == "grep"


async def test_keys_are_not_shown_and_code_that_names_them_stays_as_it_is(tmp_path: Path):
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"
    code = "token = read_token()\npassword = settings.password"
    write(tmp_path, {"a.py": f"{code}\nkey = 'sk-{'a' * 30}'\n{key}\n\x1b]0;title\x07"})
    page = await call(tools_of(tmp_path), "read_file", path="a.py")
    assert "1: token = read_token()\n2: password = settings.password" in page
    assert "aaaa" not in page and "MIIE" not in page and "\x1b" not in page
    matches = await call(tools_of(tmp_path), "search_text", pattern="sk-")
    assert "aaaa" not in matches and "a.py:3" in matches


async def test_folder_that_vanishes_is_said_and_others_go_on(tmp_path: Path):
    write(tmp_path, {"one/a.txt": "alpha", "two/b.txt": "beta"})
    tools = tools_of(tmp_path / "one")
    shutil.rmtree(tmp_path / "one")
    for name, arguments in (("list_files", {}), ("read_file", {"path": "a.txt"}), ("search_text", {"pattern": "a"})):
        assert "is not there any more" in await refuse(tools, name, **arguments)
    assert await tools.read_notes(1_000) == ""
    assert "is not there any more" in (await tools.describe(agents_file=True))[0]
    write(tmp_path, {"one/a.txt": "alpha again"})
    assert "alpha again" in await call(tools, "read_file", path="a.txt")


@pytest.mark.slow
async def test_folder_that_is_removed_while_it_is_read_fails_nothing(tmp_path: Path):
    write(tmp_path, {f"p/d{folder}/f{number}.txt": "needle" for folder in range(40) for number in range(40)})
    tools = tools_of(tmp_path / "p")
    removing = asyncio.create_task(asyncio.to_thread(shutil.rmtree, tmp_path / "p"))
    texts: list[str] = []
    while not removing.done():
        results = await asyncio.gather(tools.call("list_files", {}), tools.call("search_text", {"pattern": "needle"}))
        texts += [result.text for result in results]
    await removing
    assert texts
    assert "is not there any more" in await refuse(tools, "list_files")


@pytest.mark.slow
async def test_hundred_thousand_files_are_listed_and_searched_while_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(file_tools, "SECONDS", 600.0)
    for folder in range(100):
        (tmp_path / f"d{folder:02}").mkdir()
        for number in range(1_000):
            (tmp_path / f"d{folder:02}/f{number}.txt").touch()
    write(tmp_path, {"d42/f7.txt": "the needle"})
    tools, ticks = tools_of(tmp_path), 0
    calls = asyncio.gather(tools.call("list_files", {}), tools.call("search_text", {"pattern": "needle"}))
    while not calls.done():
        await asyncio.sleep(0.01)
        ticks += 1
    listed, matches = await calls
    assert "100,000 files" in listed.text and "d99/ (1,000 files)" in listed.text
    assert matches.text.startswith("d42/f7.txt:1: the needle\n")
    assert ticks > 20
    assert (await call(tools, "list_files", path_glob="d42/f99*")).count("\n") == 11


async def test_no_tool_shows_a_secret_and_the_list_names_what_is_hidden(tmp_path: Path):
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQ\nIBADAN\n-----END PRIVATE KEY-----"
    write(
        tmp_path, {"conf/app.yaml": f"a: 1\n{key}\nurl: amqp://u:hunter2@q/\nend: yes\n", ".netrc.bak": "x", ".x": "y"}
    )
    tools = tools_of(tmp_path)
    page = await call(tools, "read_file", path="conf/app.yaml", from_line=3, to_line=7)
    matches = await call(tools, "search_text", pattern="IBADAN|hunter|end", context=2)
    for text in (page, matches):
        assert not any(secret in text for secret in ("MIIEvQ", "IBADAN", "hunter2")), text
    assert read_lines(page)[7] == "end: yes"
    assert "conf/app.yaml:7: end: yes" in matches
    listed = await call(tools, "list_files")
    assert "left out: 1 hidden, 1 perhaps secret; hidden or perhaps secret: .netrc.bak, .x" in listed
    assert "perhaps secret" in await refuse(tools, "read_file", path=".netrc.bak")
