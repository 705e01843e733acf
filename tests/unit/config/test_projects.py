"""Which folders are in which project, and which project a name means."""

from pathlib import Path

import pytest

from massmem.cli.errors import new_debug_log
from massmem.config.projects import choose_project, find_project, name_project
from massmem.core.errors import InputError


@pytest.fixture
def work(home: Path) -> Path:
    folder = home / "work"
    folder.mkdir(parents=True)
    (home / ".massmem").mkdir(exist_ok=True)
    (home / ".massmem" / "massmem.db").touch()
    return folder


def test_nearest_root_upwards_counts(work: Path) -> None:
    inner = work / "alpha" / "vendor" / "beta" / "src"
    inner.mkdir(parents=True)
    (work / "alpha" / ".git").mkdir()
    assert find_project(inner) == find_project(work / "alpha") == str((work / "alpha").resolve())
    (inner.parent / ".git").write_text("gitdir: ../../.git/modules/beta\n")  # a submodule
    assert find_project(inner) == str(inner.parent.resolve())


def test_home_with_the_folder_of_massmem_is_no_project(work: Path, home: Path) -> None:
    assert find_project(work) == find_project(home) == find_project(home / ".massmem") == ""


def test_folder_is_marked_by_dot_massmem_but_not_by_debug_logs(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, other = work / "notes", work / "other"
    (notes / ".massmem").mkdir(parents=True)
    other.mkdir()
    for folder in (notes, other):
        monkeypatch.chdir(folder)
        new_debug_log().parent.mkdir(parents=True)
    assert find_project(notes) == str(notes.resolve())
    assert find_project(other) == ""


def test_working_directory_that_is_gone_is_in_no_project(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = work / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_project() == ""


def test_link_leads_to_the_project_that_it_points_to(work: Path) -> None:
    (work / "alpha" / ".git").mkdir(parents=True)
    (work / "link").symlink_to(work / "alpha")
    assert find_project(work / "link") == str((work / "alpha").resolve())


def test_name_means_a_known_project_or_a_folder(work: Path) -> None:
    (work / "new" / ".git").mkdir(parents=True)
    known = {"/a/site", "/b/site", "/a/shop", r"C:\code\legacy"}
    assert choose_project("", known) == ""
    assert choose_project("shop", known) == choose_project("/a/shop", known) == "/a/shop"
    assert choose_project("legacy", known) == r"C:\code\legacy"
    assert choose_project(str(work / "new"), known) == str((work / "new").resolve())
    with pytest.raises(InputError, match="2 projects are called site") as ambiguous:
        choose_project("site", known)
    assert "/a/site, /b/site" in ambiguous.value.hint
    for name in ("shed", str(work)):
        with pytest.raises(InputError, match="there is no project"):
            choose_project(name, known)


def test_project_is_called_by_its_folder() -> None:
    assert [name_project(project) for project in ("/a/shop/", r"C:\code\legacy", "alpha", "/")] == [
        "shop", "legacy", "alpha", "/",
    ]  # fmt: skip
