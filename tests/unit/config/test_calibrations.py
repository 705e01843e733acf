"""Which team a calibration is of, and files that are none."""

import json
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from massmem.config.calibrations import (
    compute_fingerprint,
    find_calibration,
    read_calibration,
    store_calibration,
)
from massmem.config.models import TeamConfig
from massmem.core import prompts
from massmem.core.errors import InputError, MassmemError
from massmem.core.events import now
from massmem.core.verdict import Calibration, Member, Outcomes, Pattern

AGENT = {"id": "a", "system_message": "Be brief.", "backend": {"type": "openai", "model": "gpt", "api_key": "sk-1"}}


def make_team(agent: dict[str, Any] | None = None, backend: dict[str, Any] | None = None, **team: Any) -> TeamConfig:
    first = AGENT | (agent or {}) | {"backend": AGENT["backend"] | (backend or {})}  # type: ignore[operator]
    return TeamConfig.model_validate({"agents": [first, AGENT | {"id": "b"}], **team})


@pytest.mark.parametrize(
    "other",
    [
        make_team({"system_message": "Be exact."}),
        make_team({"id": "c"}),
        make_team({"mcp_servers": [{"name": "files", "command": "files"}]}),
        make_team({"folders": ["."]}),
        make_team(files={"folders": ["."]}),
        make_team(backend={"model": "other"}),
        make_team(backend={"base_url": "http://localhost:1"}),
        make_team(backend={"temperature": 0.5}),
        make_team(backend={"fallback": [{"type": "openai", "model": "other"}]}),
        make_team(coordination={"max_rounds": 2}),
        make_team(coordination={"presentation": "as_is"}),
        make_team(params={"zip": {"description": "Zip code."}}),
    ],
)
def test_team_that_may_answer_otherwise_has_another_fingerprint(other: TeamConfig):
    assert compute_fingerprint(other) != compute_fingerprint(make_team())


@pytest.mark.parametrize(
    "same",
    [
        make_team({"name": "Ann"}),
        make_team(
            backend={
                "api_key": "sk-2",
                "timeout": 5,
                "deadline": 50,
                "max_retries": 1,
                "price": {"input": 1, "output": 2},
            }
        ),
        make_team(coordination={"depth": "adaptive", "max_error": 0.1, "escalate_below": 0.5}),
        make_team(coordination={"timeout": 9, "max_cost": 1, "max_tokens": 9, "max_concurrency": 1}),
        make_team(memory={"enabled": False}, store={"url": "memory:"}),
    ],
)
def test_bounds_limits_and_keys_make_no_other_team(same: TeamConfig):
    assert compute_fingerprint(same) == compute_fingerprint(make_team())


def test_other_prompts_make_another_team(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    before = compute_fingerprint(make_team())
    changed = tmp_path / "prompts.py"
    changed.write_text(Path(prompts.__file__).read_text() + "\n# another sentence\n")
    monkeypatch.setattr(prompts, "__file__", str(changed))
    assert compute_fingerprint(make_team()) != before


def make_calibration(fingerprint: str) -> Calibration:
    return Calibration(fingerprint=fingerprint, team="t", data="d", created_at=now(), outcomes=(), members={})


def test_calibration_is_private_and_replaces_the_one_before(tmp_path: Path):
    team = make_team()
    stored = make_calibration(compute_fingerprint(team))
    path = find_calibration(tmp_path, team)
    assert not path.exists()
    assert store_calibration(tmp_path, stored.model_copy(update={"team": "old"})) == path
    assert store_calibration(tmp_path, stored) == path
    assert read_calibration(path) == stored
    assert (path.stat().st_mode & 0o777, [one for one in path.parent.iterdir() if one.suffix != ".lock"]) == (
        0o600,
        [path],
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [('"right":1', '"right":3'), ('"asked":2', '"asked":-2'), ('"asked":2', f'"asked":{10**30}'), ("1.0}", "-1.0}"),
     ("1.0}", "NaN}"), ('"asked":2', '"asked":null'), ('"against":0', '"against":-1')],
)  # fmt: skip
def test_counts_that_cannot_be_are_refused(tmp_path: Path, before: str, after: str):
    pattern = Pattern(("a", "b"), 0, 0, voted=False, cut=False, kind="text")
    outcomes = Outcomes(group="", first=pattern, full=pattern, asked=2, right_first=1, right=1)
    stored = make_calibration("0123").model_copy(
        update={"outcomes": (outcomes,), "members": {"a": Member(asked=2, right=1)}, "first": ()}
    )
    path = store_calibration(tmp_path, stored)
    assert read_calibration(path) == stored
    text = path.read_text().replace('"alternatives":1.0,"first":[]}', '"first":[],"alternatives":1.0}')
    assert before in text
    path.write_text(text.replace(before, after))
    with pytest.raises(InputError, match=r"0123.json is no calibration"):
        read_calibration(path)


def test_file_that_is_no_calibration_of_the_team_is_refused_and_stays(tmp_path: Path):
    path = store_calibration(tmp_path, make_calibration("0123"))
    other = path.with_name("4567.json")
    other.write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=r"4567.json is the calibration of another team"):
        read_calibration(other)
    for damage in (path.read_bytes()[:-9], b"", b"[]", b"\xff", path.read_bytes().replace(b'"created_at"', b'"when"')):
        path.write_bytes(damage)
        with pytest.raises(InputError, match=r"0123.json is no calibration") as refused:
            read_calibration(path)
        assert "--calibrate" in refused.value.hint
        assert path.read_bytes() == damage
    with pytest.raises(InputError, match="cannot be read"):
        read_calibration(path.parent)
    with pytest.raises(MassmemError):
        store_calibration(path, make_calibration("0123"))  # a file stands where the folder should be


TAMPERED: tuple[Any, ...] = (-1, 10**9, 1e400, 0.5, None, "x", "9" * 5_000, [], {}, True, "")


def find_places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the values of a JSON value are that are neither objects nor lists."""
    if isinstance(value, dict | list):
        parts: Any = value.items() if isinstance(value, dict) else enumerate(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        for key, part in parts:
            yield from find_places(part, (*place, key))
    else:
        yield place


def test_a_calibration_that_was_tampered_with_is_refused_or_counts_what_can_be(tmp_path: Path):
    pattern = Pattern(("a",), 0, 0, voted=False, cut=False, kind="number")
    outcomes = Outcomes(group="", first=pattern, full=pattern, asked=9, right_first=3, right=4)
    changes = {"outcomes": (outcomes,), "members": {"a": Member(asked=9, right=4)}}
    path = store_calibration(tmp_path, make_calibration("0123").model_copy(update=changes))
    whole, tried = path.read_text(), 0
    for *parents, last in find_places(json.loads(whole)):
        for value in TAMPERED:
            changed = json.loads(whole)
            reduce(getitem, parents, changed)[last] = value
            path.write_text(json.dumps(changed))
            tried += 1
            try:
                read = read_calibration(path)
            except InputError as e:
                assert "0123.json is" in e.message
            else:
                counts = [*read.members.values(), *read.outcomes]
                assert all(0 <= one.right <= one.asked for one in counts), (parents, last, value)
    print(tried, "values")
    assert tried > 200
