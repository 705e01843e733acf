"""Diffs are read section by section, cut into parts without losing a line, and places in them are checked."""

import subprocess
from pathlib import Path

import pytest

from massmem.core.diffs import ChangedFile, cut_diff, find_place, number_text, read_diff, read_hunks, unquote_name
from massmem.core.errors import InputError

DIFF = """\
diff --git a/src/shop.py b/src/shop.py
index 111..222 100644
--- a/src/shop.py
+++ b/src/shop.py
@@ -10,4 +10,5 @@ def total(items):
     total = 0
-    for item in items:
+    for item in items[1:]:
+        total += item.price
         count += 1
     return total
"""


def git(folder: Path, *arguments: str) -> bytes:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout


def read_changes(folder: Path, before: dict[str, bytes], after: dict[str, bytes]) -> dict[str, ChangedFile]:
    git(folder, "init", "-q")
    for number, files in enumerate((before, after)):
        for name in before.keys() - files.keys():
            (folder / name).unlink()
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        git(folder, "add", "-A")
        if not number:
            git(folder, "commit", "-qm", "before")
    text = git(folder, "diff", "--cached").decode("utf-8", "replace")
    return {file.path: file for file in read_diff(text)}


def find(
    path: str, first: int | None, last: int | None, quote: str = "", whole: list[str] | None = None
) -> tuple[str, int, int] | None:
    files = {file.path: file for file in read_diff(DIFF)}
    place = find_place(path, first, last, quote, files, lambda name: whole if name == "src/shop.py" else None)
    return place and (place.path, place.first, place.last)


@pytest.mark.parametrize(
    "name",
    ["plain.py", "a name with blanks.py", 'quo"te.py', "ünï.py", "deep/er/x.py", "b/x.py", "tab\there.py", "-dash.py"],
)
def test_a_file_has_its_own_name_and_the_lines_of_the_new_side(tmp_path: Path, name: str) -> None:
    (file,) = read_changes(tmp_path, {name: b"one\ntwo\nthree\n"}, {name: b"one\nTWO\nthree\nfour"}).values()
    assert (file.path, file.status, file.problem) == (name, "changed", "")
    assert file.lines == {1: "one", 2: "TWO", 3: "three", 4: "four"}


def test_each_kind_of_change_has_its_status(tmp_path: Path) -> None:
    before = {"gone.py": b"x\n", "moved.py": b"1\n2\n3\n4\n5\n", "picture": bytes(range(256))}
    after = {"new.py": b"--- a\n+++ b\n@@ -1 +1 @@\n", "elsewhere.py": b"1\n2\n3\n4\n5\n", "picture": bytes(256)}
    files = read_changes(tmp_path, before, after)
    assert {name: file.status for name, file in files.items()} == {
        "gone.py": "removed", "new.py": "added", "elsewhere.py": "renamed", "picture": "changed",
    }  # fmt: skip
    assert files["picture"].problem == "not a text"
    assert files["gone.py"].lines == {}
    assert files["new.py"].lines == {1: "--- a", 2: "+++ b", 3: "@@ -1 +1 @@"}


@pytest.mark.parametrize("ends", [b"\r\n", b"\n"])
def test_ends_of_lines_and_foreign_characters_do_not_shift_numbers(tmp_path: Path, ends: bytes) -> None:
    lines = [b"caf\xe9", b"\x0cpage", b"a\x0bb\xc2\x85c\xe2\x80\xa8d", b"last"]
    before, after = ends.join(lines) + ends, ends.join([*lines[:3], b"new", b"last"]) + ends
    (file,) = read_changes(tmp_path, {"a.txt": before}, {"a.txt": after}).values()
    assert file.lines[4] == "new"
    assert file.lines[5] == "last"


def test_a_section_that_cannot_be_read_takes_no_other_with_it() -> None:
    merge = "diff --cc both.py\nindex 1,2..3\n--- a/both.py\n+++ b/both.py\n@@@ -1 -1 +1,2 @@@\n  x\n++y\n"
    cut = "diff --git a/cut.py b/cut.py\n--- a/cut.py\n+++ b/cut.py\n@@ -1,9 +1,9 @@\n x\n"
    files = {file.path: file for file in read_diff(cut + merge + DIFF)}
    assert [(name, bool(file.problem)) for name, file in files.items()] == [
        ("cut.py", True), ("both.py", True), ("src/shop.py", False),
    ]  # fmt: skip


def test_diffs_without_git_are_read() -> None:
    plain = "--- a.py\t2026-01-01\n+++ a.py\t2026-01-02\n@@ -1 +1 @@\n-x\n+y\n"
    assert [file.lines for file in read_diff(plain + plain.replace("a.py", "b.py"))] == [{1: "y"}, {1: "y"}]


@pytest.mark.parametrize(("text", "message"), [("", "nothing has changed"), (" \n", "nothing"), ("Hello", "no diff")])
def test_texts_without_a_diff_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_diff(text)


def test_parts_hold_every_line_once_and_fit() -> None:
    hunks = [
        f"@@ -{1 + 100 * n},0 +{1 + 100 * n},40 @@\n" + "".join(f"+line {n}.{i} {'x' * (i % 50)}\n" for i in range(40))
        for n in range(20)
    ]
    text = "".join(f"diff --git a/f{k}.py b/f{k}.py\n--- a/f{k}.py\n+++ b/f{k}.py\n" + "".join(hunks) for k in range(3))
    parts = cut_diff(read_diff(text), 3_000)
    assert len(parts) > 20
    assert max(map(len, parts)) <= 3_000
    rows = [row for part in parts for row in part.splitlines() if " + line " in row]
    assert len(rows) == 2_400
    assert len(set(rows)) == 800  # the same in each of three files


def test_a_prompt_has_the_lines_that_its_hunks_had(tmp_path: Path) -> None:
    before = {"a b.py": b"".join(b"%d\n" % number for number in range(300)), "c, lines 1 to 2.py": b"x\n"}
    after = {name: data.replace(b"5\n", b" 5 - \n\n") for name, data in before.items()}
    after["c, lines 1 to 2.py"] = b"     1 + x\n"
    files = read_changes(tmp_path, before, after)
    text = "A question\n\n" + "\n\n".join(cut_diff(files.values(), 700)) + "\n\nThe end"
    assert {path: file.lines for path, file in read_hunks(text).items()} == {
        path: file.lines for path, file in files.items()
    }


def test_a_document_is_numbered_as_it_stands() -> None:
    assert number_text("PLAN.md", "one\r\n\r\nthree\n").lines == {1: "one", 2: "", 3: "three"}


def test_a_line_longer_than_a_part_stands_whole() -> None:
    text = DIFF.replace("items[1:]", "x" * 5_000)
    assert any("x" * 5_000 in part for part in cut_diff(read_diff(text), 1_000))


@pytest.mark.parametrize(
    "path", ["src/shop.py", "./src/shop.py", "b/src/shop.py", "shop.py", "`src/shop.py`", "src\\shop.py"]
)
def test_a_path_is_found_as_agents_write_it(path: str) -> None:
    assert find(path, 11, 11) == ("src/shop.py", 11, 11)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("src/shop.py", 11, 12, ""), (11, 12)),
        (("src/shop.py", 11, None, ""), (11, 11)),
        (("src/shop.py", 12, 11, ""), None),
        (("src/shop.py", 99, 99, ""), None),
        (("src/shop.py", 11, 99, ""), None),
        (("src/shop.py", None, None, ""), None),
        (("src/other.py", 11, 11, ""), None),
        (("src/shop.py", 11, 11, "for item in items[1:]:"), (11, 11)),
        (("src/shop.py", 400, 400, "for item in items[1:]:"), (11, 11)),
        (("src/shop.py", None, None, "items[1:]:\n   total += item.price"), (11, 12)),
        (("src/shop.py", 11, 11, "what nobody wrote"), None),
        (("src/shop.py", 11, 11, "total"), None),
        (("src/shop.py", 12, 12, "total"), (12, 12)),
    ],
    ids=repr,
)  # fmt: skip
def test_a_place_is_where_its_lines_and_its_quote_are(
    place: tuple[str, int | None, int | None, str], expected: tuple[int, int] | None
) -> None:
    assert find(*place) == (expected and ("src/shop.py", *expected))


def test_a_place_beside_the_change_is_looked_up_in_the_file() -> None:
    whole = [f"line {number}" for number in range(1, 30)]
    assert find("src/shop.py", 3, 4, "line 3", whole) == ("src/shop.py", 3, 4)
    assert find("src/shop.py", 30, 30, "", whole) is None


@pytest.mark.parametrize(("name", "expected"), [('"a/\\303\\274 \\"x\\".py"', 'ü "x".py'), ("plain.py", "plain.py")])
def test_quoted_names_are_read(name: str, expected: str) -> None:
    assert unquote_name(name) == expected
