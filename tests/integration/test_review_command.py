"""`massmem review` in real repositories: what is read, where findings stand, what is dismissed, and what is sent."""

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import COMMAND, call_massmem, run_program, start

ROOT = Path(__file__).parents[2]
SHOP = """\
def total(items):
    amount = 0
    for item in items:
        amount += item.price
    return amount


def first(items):
    return items[0]
"""
SKIPPED = {
    "title": "The first item is skipped", "kind": "fault", "file": "src/shop.py", "lines": "3", "severity": "high",
    "reason": "the slice leaves out the first item", "evidence": "for item in items[1:]:",
    "suggestion": "for item in items:",
}  # fmt: skip
EMPTY = {
    "title": "An empty list fails", "file": "src/shop.py", "lines": "99", "severity": "low", "reason": "IndexError",
    "evidence": "return items[0]",
}  # fmt: skip
LEFT_OUT = {
    "title": "Loop leaves out the first item", "file": "shop.py", "lines": "3-4", "severity": "high",
    "reason": "the first item is skipped by the slice",
}  # fmt: skip
GHOST = {"title": "The cache is never emptied", "file": "nowhere.py", "lines": "7", "severity": "medium"}


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def write_items(*items: dict[str, Any]) -> str:
    return json.dumps({"items": items})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a change that is not committed, and a team of two that reviews it."""
    folder = tmp_path / "shop"
    (folder / "src").mkdir(parents=True)
    git(folder.parent, "init", "-q", "-b", "main", str(folder))
    (folder / "src" / "shop.py").write_text(SHOP)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    (folder / "src" / "shop.py").write_text(SHOP.replace("in items:", "in items[1:]:"))
    write_reviewers(
        tmp_path / "team.yaml",
        {"items": write_items(SKIPPED, EMPTY)},
        {
            "items": write_items(LEFT_OUT, GHOST),
            "check": '{"checks": [{"item": 2, "stand": "reject", "reason": "callers do"}]}',
        },
    )
    return folder


def write_reviewers(path: Path, *scripts: dict[str, Any]) -> None:
    agents = [
        {"id": name, "backend": {"type": "scripted", "script": one}} for name, one in zip("abc", scripts, strict=False)
    ]
    path.write_text(json.dumps({"agents": agents}))


def review(folder: Path, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    team = str(folder.parent / "team.yaml")
    done = call_massmem("review", *arguments, "--config", team, stdin=stdin, cwd=folder)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def read_json(folder: Path, *arguments: str) -> dict[str, Any]:
    code, out, err = review(folder, "--output", "json", "--quiet", *arguments)
    assert code == 0, err
    return json.loads(out)


def list_places(report: dict[str, Any]) -> dict[str, str]:
    return {
        one["title"]: one["place"] and f"{one['place']['file']}:{one['place']['first']}-{one['place']['last']}"
        for one in report["findings"]
    }


def list_turns(folder: Path) -> list[dict[str, Any]]:
    """The turns of all reviews."""
    turns: list[dict[str, Any]] = []
    for session in json.loads(call_massmem("--list-sessions", "--json", cwd=folder).stdout):
        shown = call_massmem("sessions", "show", session["session_id"], "--all", "--json", cwd=folder).stdout
        turns += json.loads(shown)["turns"]
    return turns


def read_questions(folder: Path) -> list[str]:
    """The questions of all reviews, as the agents are sent them."""
    listed = call_massmem("--list-sessions", "--json", cwd=folder).stdout
    texts: list[str] = []
    for session in json.loads(listed):
        shown = call_massmem("sessions", "show", session["session_id"], cwd=folder)
        texts.append(shown.stdout.decode())
    return texts


def test_findings_stand_where_they_are_or_nowhere(repository: Path) -> None:
    report = read_json(repository)
    assert list_places(report) == {
        "The first item is skipped": "src/shop.py:3-3",
        "The cache is never emptied": None,
        "An empty list fails": "src/shop.py:9-9",  # the quote stands there, whatever the number says
    }
    skipped, ghost, empty = report["findings"]
    assert skipped["found_by"] == ["a", "b"]
    assert (ghost["found_by"], ghost["confirmed_by"]) == (["b"], ["a"])
    assert empty["rejected_by"] == [{"agent": "b", "reason": "callers do"}]


@pytest.mark.parametrize(
    ("arguments", "prepare"),
    [
        ((), ""), (("--staged",), "add"), (("HEAD~1..HEAD",), "commit"), (("HEAD~1...HEAD",), "commit"),
        (("HEAD~1",), "commit"), (("-",), ""), (("--pr", "../change.diff"), ""), (("../change.diff",), ""),
    ],
    ids=str,
)  # fmt: skip
def test_every_way_to_name_a_change_reviews_it(repository: Path, arguments: tuple[str, ...], prepare: str) -> None:
    diff = subprocess.run(["git", "diff"], cwd=repository, check=True, capture_output=True).stdout
    (repository.parent / "change.diff").write_bytes(diff)
    if prepare:
        git(repository, "add", ".")
    if prepare == "commit":
        git(repository, "commit", "-qm", "two")
    code, out, err = review(repository, *arguments, "--quiet", "--output", "json", stdin=diff)
    assert code == 0, err
    assert list_places(json.loads(out))["The first item is skipped"] == "src/shop.py:3-3"


def test_a_document_is_reviewed_by_its_lines(repository: Path) -> None:
    (repository / "PLAN.md").write_text("# Plan\n\nShip on Friday.\n")
    late = {"title": "Nobody is there on Saturday", "file": "PLAN.md", "lines": "3", "evidence": "Ship on Friday."}
    write_reviewers(repository.parent / "team.yaml", {"items": write_items(late)})
    assert list_places(read_json(repository, "PLAN.md")) == {"Nobody is there on Saturday": "PLAN.md:3-3"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("main...nowhere",), "git refuses"), (("--staged",), "nothing is staged"), (("-",), "this is no diff"),
        (("HEAD", "--staged"), "one thing is reviewed at a time"), (("dismiss", "1234"), "say which finding"),
        (("dismiss", "1234", "--because", "x"), "no review of this project has a finding"),
        (("--output-directory",), ""), (("no/such/file.py",), "git refuses"),
    ],
    ids=str,
)  # fmt: skip
def test_unreadable_changes_are_refused(repository: Path, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = review(repository, *arguments, stdin=b"hello")
    assert (code, out) == (2, "")
    assert message in err


def test_a_diff_that_is_too_large_is_refused_and_not_cut(repository: Path) -> None:
    code, out, err = review(repository, "-", stdin=b"+" * 20_000_001)
    assert (code, out) == (2, "")
    assert "larger than 20,000,000 bytes" in err


def test_new_files_that_git_does_not_know_are_named(repository: Path) -> None:
    git(repository, "checkout", "-q", ".")
    (repository / "new.py").write_text("x = 1\n")
    code, _, err = review(repository)
    assert code == 2
    assert "new.py" in err
    assert "git add --intent-to-add" in err


def test_nothing_is_asked_twice_unless_again(repository: Path) -> None:
    first = read_json(repository)
    second, third = read_json(repository), read_json(repository, "--again")
    assert second == first
    assert third["sessions"] != first["sessions"]


def test_dismissed_findings_stay_away_until_their_code_changes(repository: Path) -> None:
    finding = read_json(repository)["findings"][0]
    code, out, _ = review(repository, "dismiss", finding["id"], "--because", "the first one is the heading")
    assert (code, out) == (0, "dismissed: The first item is skipped (src/shop.py:3)\n")
    moved = SHOP.replace("in items:", "in items[1:]:").replace("def total", "import os\n\n\ndef total")
    (repository / "src" / "shop.py").write_text(moved)
    lower = {**SKIPPED, "title": "Skips the first item", "lines": "6"}
    write_reviewers(
        repository.parent / "team.yaml", {"items": write_items(lower, {**EMPTY, "title": "No items, no first"})}
    )
    report = read_json(repository)
    assert [one["title"] for one in report["findings"]] == ["No items, no first"]
    assert report["dismissed"] == 1
    shown = read_json(repository, "--show-dismissed")["findings"]
    assert [one["dismissed"] for one in shown if one["dismissed"]] == ["the first one is the heading"]
    (repository / "src" / "shop.py").write_text(moved.replace("items[1:]", "items[2:]"))
    other = {**lower, "evidence": "for item in items[2:]:"}
    write_reviewers(repository.parent / "team.yaml", {"items": write_items(other)})
    assert [one["title"] for one in read_json(repository)["findings"]] == ["Skips the first item"]


def test_a_dismissal_is_a_memory_that_can_be_forgotten(repository: Path) -> None:
    finding = read_json(repository)["findings"][0]
    review(repository, "dismiss", finding["id"], "--because", "it is wanted")
    team = str(repository.parent / "team.yaml")
    listed = json.loads(call_massmem("memory", "list", "--json", "--config", team, cwd=repository).stdout)
    (note,) = [one for one in listed["memories"] if one["text"].startswith("Dismissed in review")]
    assert "it is wanted" in note["text"]
    call_massmem("memory", "forget", note["id"], "--yes", "--config", team, cwd=repository)
    assert read_json(repository)["dismissed"] == 0


def test_the_change_itself_becomes_no_memory(repository: Path) -> None:
    read_json(repository)
    team = str(repository.parent / "team.yaml")
    listed = json.loads(call_massmem("memory", "list", "--json", "--config", team, cwd=repository).stdout)
    assert listed["memories"]
    assert not [one for one in listed["memories"] if one["agent_id"] == "user"]


def test_secrets_of_a_change_are_not_sent(repository: Path) -> None:
    (repository / ".env").write_text("TOKEN=ghp_012345678901234567890123456789abcdef\n")
    (repository / "src" / "shop.py").write_text(SHOP + '\nKEY = "sk-proj-0123456789abcdef0123456789abcdef0123456789"\n')
    git(repository, "add", "-N", ".env")
    code, out, err = review(repository, "--quiet")
    assert code == 0, err
    assert ".env: by its name it holds secrets" in out
    (question,) = read_questions(repository)
    assert "KEY = " in question
    assert "ghp_0123" not in question
    assert "sk-proj-0123" not in question


@pytest.mark.parametrize(("least", "expected"), [("high", 8), ("any", 8), (None, 0)])
def test_a_limit_of_severity_has_an_exit_code(repository: Path, least: str | None, expected: int) -> None:
    code, out, _ = review(repository, "--quiet", *(["--fail-on", least] if least else []))
    assert code == expected
    assert "The first item is skipped" in out


def test_a_large_change_is_reviewed_in_parts_and_none_is_left_out(repository: Path) -> None:
    for number in range(6):
        lines = "".join(f"value_{number}_{i} = {i}\n" for i in range(2_500))
        (repository / f"big{number}.py").write_text(lines)
    git(repository, "add", "-N", ".")
    write_reviewers(repository.parent / "team.yaml", {"items": write_items()})
    code, out, err = review(repository)
    assert code == 0, err
    assert "0 findings" in out
    seen = "\n".join(read_questions(repository))
    for number in range(6):
        assert f"value_{number}_0 = 0" in seen
        assert f"value_{number}_2499 = 2499" in seen
    sent = sorted(turn["usage"]["prompt"] for turn in list_turns(repository))
    assert len(sent) > 3
    assert sent[-1] < 1.5 * sent[-3], "no part is sent with another one"


@pytest.mark.parametrize("delay", [0.4, 0.9, 1.5])
def test_a_killed_review_goes_on_and_asks_nothing_twice(repository: Path, delay: float) -> None:
    for number in range(4):
        (repository / f"big{number}.py").write_text("".join(f"value_{number}_{i} = {i}\n" for i in range(2_500)))
    git(repository, "add", "-N", ".")
    slow = {"items": write_items(SKIPPED), "latency": 0.2}
    write_reviewers(repository.parent / "team.yaml", slow, slow)
    team = str(repository.parent / "team.yaml")
    for _ in range(2):  # a turn in which three processes died is given up
        process = start("review", "--config", team, cwd=repository)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1.5 + delay)
        process.kill()
        process.communicate()
    report = read_json(repository)
    turns = list_turns(repository)
    parts = [turn["question"] for turn in turns]
    assert len(parts) == len(set(parts)) > 2
    assert [turn["status"] for turn in turns] == ["completed"] * len(parts)
    assert len(report["findings"]) == len(parts)


def run_hook(repository: Path, local: str, remote: str, env: dict[str, str]) -> "subprocess.CompletedProcess[bytes]":
    line = f"refs/heads/main {local} refs/heads/main {remote}\n".encode()
    hook = ROOT / "docs" / "review" / "pre-push"
    return subprocess.run(
        ["sh", str(hook), "origin", "x"], input=line, cwd=repository, env=env, capture_output=True, check=False
    )


@pytest.fixture
def programs(repository: Path) -> dict[str, str]:
    """An environment whose PATH has a `massmem` that runs this one."""
    folder = repository.parent / "bin"
    folder.mkdir()
    (folder / "massmem").write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    (folder / "massmem").chmod(0o755)
    options = f"--config {repository.parent / 'team.yaml'}"
    path = f"{folder}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "MASSMEM_REVIEW": options, "PYTHONPATH": str(ROOT)}


def test_the_hook_stops_a_push_with_something_severe(repository: Path, programs: dict[str, str]) -> None:
    git(repository, "commit", "-qam", "two")
    head, base = (
        subprocess.run(
            ["git", "rev-parse", name], cwd=repository, check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("HEAD", "HEAD~1")
    )
    stopped = run_hook(repository, head, base, programs)
    assert stopped.returncode == 1
    assert b"The first item is skipped" in stopped.stderr
    broken = {**programs, "MASSMEM_REVIEW": "--config nowhere.yaml"}
    assert run_hook(repository, head, base, broken).returncode == 0
    assert run_hook(repository, "0" * 40, base, programs).returncode == 0
    write_reviewers(repository.parent / "team.yaml", {"items": write_items(EMPTY)})
    assert run_hook(repository, head, "0" * 40, programs).returncode == 0


def test_the_steps_of_the_workflow_run(repository: Path, programs: dict[str, str], tmp_path: Path) -> None:
    """As far as they can without GitHub: the installation, the upload and the comment are its own."""
    git(repository, "commit", "-qam", "two")
    workflow = yaml.safe_load((ROOT / "docs" / "review" / "massmem-review.yml").read_text())
    (step,) = [one for one in workflow["jobs"]["review"]["steps"] if one.get("name") == "Review"]
    summary = tmp_path / "summary.md"
    env = {**programs, "BASE": "HEAD~1", "GITHUB_STEP_SUMMARY": str(summary)}
    done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=repository, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"::error title=The first item is skipped,file=src/shop.py,line=3,endLine=3::" in done.stdout
    assert json.loads((repository / "massmem.sarif").read_text())["runs"][0]["results"]
    assert "**The first item is skipped**" in summary.read_text()


def test_a_quiet_review_writes_nothing_on_stderr(repository: Path) -> None:
    done = run_program("review", "--config", str(repository.parent / "team.yaml"), "--quiet", cwd=repository)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
