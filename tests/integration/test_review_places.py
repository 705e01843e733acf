"""Ten small changes with known faults, reviewed by scripted agents: places, merging, and that nothing is lost."""

import json
import os
import subprocess
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import call_massmem

CHANGES = yaml.safe_load((Path(__file__).parents[1] / "data" / "review_faults.yaml").read_text())
AGENTS = ("ann", "bob", "cem")


@dataclass(frozen=True)
class Listed:
    """What one agent lists, and the number of the line that it means."""

    agent: str
    title: str
    line: int
    item: dict[str, Any]


def list_items(change: dict[str, Any]) -> list[Listed]:
    """Return what the agents list: ann with the right lines, bob near them, cem with a quote and a wrong number."""
    lines = change["text"].split("\n")
    listed: list[Listed] = []
    for fault in change["faults"] + change["harmless"]:
        number = lines.index(fault["line"]) + 1
        for agent, (title, reason) in zip(AGENTS, fault["says"], strict=False):
            places = {
                "ann": {"file": change["path"], "lines": str(number), "evidence": fault["line"].strip()},
                "bob": {"file": f"b/{change['path']}", "lines": f"{number}-{min(number + 1, len(lines) - 1)}"},
                "cem": {"file": change["path"].rpartition("/")[2], "lines": "900", "evidence": fault["line"].strip()},
            }
            item = {"title": title, "reason": reason, "severity": "medium", **places[agent]}
            listed.append(Listed(agent, title, number, item))
    return listed


def review(folder: Path, change: dict[str, Any], listed: list[Listed]) -> list[dict[str, Any]]:
    """Return the findings of `massmem review` in a repository that has just got this file."""
    path = folder / "repository" / change["path"]
    path.parent.mkdir(parents=True)
    path.write_text(change["text"])
    subprocess.run(["git", "init", "-q", str(folder / "repository")], check=True, capture_output=True)
    subprocess.run(["git", "add", "."], cwd=folder / "repository", check=True, capture_output=True)
    own = {agent: [one.item for one in listed if one.agent == agent] for agent in AGENTS}
    agents = [
        {"id": agent, "backend": {"type": "scripted", "script": {"items": json.dumps({"items": own[agent]})}}}
        for agent in AGENTS
    ]
    (folder / "team.yaml").write_text(json.dumps({"agents": agents}))
    arguments = ["--staged", "--output", "json", "--quiet", "--config", str(folder / "team.yaml")]
    done = call_massmem("review", *arguments, cwd=path.parent, env={**os.environ, "HOME": str(folder)})
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)["findings"]


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[Listed], list[dict[str, Any]]]]:
    results: list[tuple[list[Listed], list[dict[str, Any]]]] = []
    for change in CHANGES:
        listed = list_items(change)
        results.append((listed, review(tmp_path_factory.mktemp("change"), change, listed)))
    return results


def group_by_finding(listed: list[Listed], findings: list[dict[str, Any]]) -> dict[str, int]:
    """Return the finding in which what an agent said has ended, by its title."""
    return {title: place for place, finding in enumerate(findings) for title in finding["titles"]}


def test_the_data_is_what_it_is_said_to_be() -> None:
    assert len(CHANGES) == 10
    assert sum(len(change["faults"]) for change in CHANGES) == 40
    assert sum(len(change["harmless"]) for change in CHANGES) == 20
    assert {change["path"].rpartition(".")[2] for change in CHANGES} == {"py", "js", "go"}


def test_every_place_is_right(reviewed: list[tuple[list[Listed], list[dict[str, Any]]]]) -> None:
    wrong: list[str] = []
    for listed, findings in reviewed:
        line_of = {one.title: one.line for one in listed}
        for finding in findings:
            place = finding["place"]
            if place is None or not place["first"] <= line_of[finding["title"]] <= place["last"]:
                wrong.append(f"{finding['title']}: {place}")
    assert wrong == []


def test_nothing_that_an_agent_found_is_lost(reviewed: list[tuple[list[Listed], list[dict[str, Any]]]]) -> None:
    for listed, findings in reviewed:
        assert sorted(one.title for one in listed) == sorted(t for finding in findings for t in finding["titles"])


def test_same_findings_are_merged_and_no_others(
    reviewed: list[tuple[list[Listed], list[dict[str, Any]]]], capsys: pytest.CaptureFixture[str]
) -> None:
    right = apart = together = 0
    for listed, findings in reviewed:
        place_of = group_by_finding(listed, findings)
        for one, other in combinations(listed, 2):
            if one.agent == other.agent:
                continue
            is_same, is_merged = one.line == other.line, place_of[one.title] == place_of[other.title]
            right += is_same == is_merged
            apart += is_same and not is_merged
            together += is_merged and not is_same
    with capsys.disabled():
        print(f"\npairs right {right}, same but apart {apart}, merged but different {together}")
    assert together == 0
    assert right / (right + apart + together) >= 0.95
