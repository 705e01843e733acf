"""Two processes that start at the same moment on one home: what each reports is there, or it says why it is not."""

import json
import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from massmem.config.calibrations import calibrations_folder, read_calibration
from massmem.config.load import load_config
from tests.support.cli import call_massmem
from tests.support.forked import run_at_once
from tests.support.recorded_sessions import record_sessions

MORE = "session_20260101_100009"
ITEMS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(3)]
Ends = list[CompletedProcess[str]]
A, B, C = (f"session_20260101_10000{number}" for number in range(3))
OWL, CAT, DOG = "The owl of the mill is called Bertram.", "The cat of the mill is called Tom.", "The dog is called Rex."
BOTH, ONE, EITHER = {(0, 0), (0, 7)}, {(0, 2), (0, 3)}, {(0, 0), (0, 2), (0, 3), (0, 5), (0, 7)}
TEAM = ("--config", "team.yaml")
WITHOUT_TEAM = {"keys", "init", "eval", "recover"}


@dataclass(frozen=True)
class Case:
    """Commands, with {A}, {OWL}, ... for ids; what is to be true afterwards."""

    commands: tuple[str, str]
    is_right: Callable[[Ends], object]
    codes: set[tuple[int, ...]]


def folder() -> Path:
    return Path(os.environ["HOME"], ".massmem")


def read(*command: str) -> Any:
    result = call_massmem(*command, "--json", *(() if WITHOUT_TEAM & {*command} else TEAM))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def memories() -> dict[str, dict[str, Any]]:
    return {memory["text"]: memory for memory in read("memory", "list", "--limit", "1000")["memories"]}


def sessions() -> dict[str, dict[str, Any]]:
    return {one["session_id"]: one for one in read("sessions", "list", "--limit", "0")["sessions"]}


def registered() -> set[str]:
    return {one["session_id"] for one in json.loads(call_massmem("--list-sessions", "--json").stdout)}


def titles() -> list[str]:
    return [one["title"] for one in sessions().values()]


def is_configured(replaced: int) -> bool:
    """The file is whole, and each that was replaced is a backup: that of the user, and that of the other process."""
    backups = [path.read_text() for path in folder().glob("config.yaml.bak-*")]
    assert backups.count("agents: []  # mine") == replaced
    assert len(backups) == 2 * replaced
    return bool(load_config(folder() / "config.yaml", os.environ)[0].agents) and not [*folder().glob(".*draft*")]


def names(ends: Ends, key: str) -> list[str]:
    return [json.loads(end.stdout)[key] for end in ends if end.returncode == 0]


def restores(archive: str) -> bool:
    shutil.rmtree(folder())
    assert call_massmem("store", "restore", archive, *TEAM).returncode == 0
    return sessions().keys() == {A, B, C} and not [*Path().glob(".*.draft")]


def calibrated() -> int:
    return len([read_calibration(path) for path in calibrations_folder(folder()).glob("*.json")])


CASES = {
    "keys set": Case(
        ("keys set openai", "keys set groq"),
        lambda _: read("keys", "list")["keys"].keys() == {"OPENAI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY"},
        BOTH,
    ),
    "keys set and remove": Case(
        ("keys set openai", "keys remove MISTRAL_API_KEY"),
        lambda _: read("keys", "list")["keys"].keys() == {"OPENAI_API_KEY"},
        BOTH,
    ),
    "init": Case(("init --yes --no-try", "init --yes --no-try"), lambda _: is_configured(replaced=0), ONE),
    "init --force": Case(
        ("init --yes --no-try --force", "init --yes --no-try --force"), lambda _: is_configured(replaced=1), BOTH
    ),
    "rename to the same name": Case(
        ("sessions rename {A} Same", "sessions rename {B} Same"),
        lambda ends: titles().count("Same") == sum(end.returncode == 0 for end in ends),
        ONE | {(2, 2)},
    ),
    "rename the same": Case(
        ("sessions rename {A} First", "sessions rename {A} Second"),
        lambda _: len({"First", "Second"} & {*titles()}) == 1,
        BOTH,
    ),
    "memory add": Case(
        ('memory add "The red door."', 'memory add "The blue door."'),
        lambda _: {"The red door.", "The blue door."} <= memories().keys(),
        BOTH,
    ),
    "memory add, the same": Case(
        ('memory add "The red door."', 'memory add "The red door."'), lambda _: "The red door." in memories(), BOTH
    ),
    "memory edit": Case(
        ('memory edit {OWL} "One owl."', 'memory edit {OWL} "Two owls."'),
        lambda _: len({"One owl.", "Two owls."} & memories().keys()) == 1 and OWL not in memories(),
        EITHER,
    ),
    "memory edit and forget": Case(
        ('memory edit {OWL} "One owl."', "memory forget {OWL} --yes"),
        lambda ends: OWL not in memories() and (ends[1].returncode or "One owl." not in memories()),
        EITHER,
    ),
    "memory pin": Case(
        ("memory pin {OWL}", "memory pin {CAT}"), lambda _: sum(m["pinned"] for m in memories().values()) == 2, BOTH
    ),
    "memory pin and edit": Case(
        ("memory pin {OWL}", 'memory edit {OWL} "One owl."'),
        lambda _: memories()["One owl."]["pinned"],
        BOTH,
    ),
    "memory forget": Case(
        ("memory forget {OWL} --yes", "memory forget {CAT} --yes"), lambda _: not {OWL, CAT} & memories().keys(), BOTH
    ),
    "memory forget, the same": Case(
        ("memory forget {OWL} --yes", "memory forget {OWL} --yes"), lambda _: OWL not in memories(), EITHER
    ),
    "memory forget --everywhere": Case(
        ("memory forget --everywhere {OWL} --yes", "memory forget --everywhere {CAT} --yes"),
        lambda ends: not {t for t, end in zip((OWL, CAT), ends, strict=True) if not end.returncode} & memories().keys(),
        EITHER,
    ),
    "memory rebuild": Case(
        ("memory rebuild", "memory rebuild"), lambda _: {OWL, CAT, DOG} <= memories().keys(), EITHER
    ),
    "memory rebuild and add": Case(
        ("memory rebuild", 'memory add "The red door."'),
        lambda _: {OWL, CAT, DOG, "The red door."} <= memories().keys(),
        BOTH,
    ),
    "memory record": Case(("memory record", "memory record"), lambda _: {OWL, CAT, DOG} <= memories().keys(), BOTH),
    "sessions delete": Case(
        ("sessions delete {A} --yes", "sessions delete {B} --yes"),
        lambda ends: (
            {A, B} - sessions().keys() == {one for one, end in zip((A, B), ends, strict=True) if not end.returncode}
        ),
        EITHER,
    ),
    "sessions delete, the same": Case(
        ("sessions delete {A} --yes", "sessions delete {A} --yes"),
        lambda _: sessions().keys() == registered() == {B, C},
        EITHER,
    ),
    "sessions delete and rename": Case(
        ("sessions delete {A} --yes", "sessions rename {A} First"),
        lambda _: sessions().keys() == registered() == {B, C},
        EITHER,
    ),
    "sessions delete and pin": Case(
        ("sessions delete {A} --yes", "memory pin {OWL}"),
        lambda ends: sessions().keys() == {B, C} and OWL not in memories(),
        EITHER,
    ),
    "sessions cleanup": Case(
        ("sessions cleanup --older-than 1s --yes", "sessions cleanup --older-than 1s --yes"),
        lambda _: not sessions() and not registered() and not memories(),
        EITHER,
    ),
    "sessions fork": Case(
        ("sessions fork {A} --json", "sessions fork {A} --json"),
        lambda ends: len({*names(ends, "session_id")} & sessions().keys() & registered()) == 2,
        BOTH,
    ),
    "sessions export": Case(
        ("sessions export {A} --to a.json", "sessions export {A} --to a.json"),
        lambda _: A in Path("a.json").read_text() and not [*Path().glob(".*.part")],
        BOTH,
    ),
    "export": Case(
        ("export --all --to all", "export --all --to all"),
        lambda _: {path.stem for path in Path("all").glob("*.json")} == {A, B, C},
        EITHER,
    ),
    "a question": Case(
        ("ask Why? --output json", "ask When? --output json"),
        lambda ends: len({*names(ends, "session_id")} & sessions().keys() & registered()) == 2,
        BOTH,
    ),
    "a question and delete": Case(
        ("ask Why? --session-id {A}", "sessions delete {A} --yes"),
        lambda ends: (A not in sessions()) == (ends[1].returncode == 0) or ends[0].returncode == 0,
        EITHER,
    ),
    "store backup": Case(("store backup new.zip", "store backup new.zip"), lambda _: restores("new.zip"), ONE),
    "store restore": Case(
        ("store restore more.zip", "store restore more.zip"),
        lambda _: sessions().keys() == registered() == {A, B, C, MORE},
        EITHER,
    ),
    "store migrate": Case(
        ("store migrate --to sqlite:///{HOME}/copy.db", "store migrate --to sqlite:///{HOME}/copy.db"),
        lambda _: call_massmem("store", "migrate", "--to", f"sqlite:///{folder()}/copy.db").stderr.count(b"3 already"),
        EITHER,
    ),
    "store recover": Case(
        ("store recover damaged.db --to saved", "store recover damaged.db --to saved"),
        lambda _: call_massmem("store", "restore", "saved/recovered.db", *TEAM).returncode == 0,
        ONE,
    ),
    "import": Case(
        ("import more.json", "import more.json"), lambda _: len(sessions()) == len(registered()) == 4, EITHER
    ),
    "key create": Case(
        ("key create --sub ann --json", "key create --sub bob --json"),
        lambda ends: {*names(ends, "id")} <= {key["id"] for key in read("key", "list")},
        BOTH,
    ),
    "eval": Case(
        ("eval data.jsonl --config two.yaml", "eval data.jsonl --config two.yaml"),
        lambda _: sum(len(path.read_text().splitlines()) for path in (folder() / "eval").glob("*.jsonl")) == len(ITEMS),
        EITHER,
    ),
    "eval --calibrate": Case(
        ("eval data.jsonl -c two.yaml --calibrate", "eval data.jsonl -c two.yaml --calibrate --results other.jsonl"),
        lambda _: calibrated() == 1,
        BOTH,
    ),
}
SHORT = {"keys set", "init", "rename to the same name", "memory edit and forget", "sessions delete", "store backup"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `home`, in which three sessions are recorded, and with files that commands take."""
    place = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for name, texts in {
            "more": {MORE: [(DOG, "So.")]},
            "home": {A: [(OWL, "No.")], B: [(CAT, "No.")], C: [(DOG, "No.")]},
        }.items():
            patch.setenv("HOME", str(place / name))
            record_sessions(place / name, dict(texts.items()))
            assert call_massmem("store", "backup", f"{name}.zip", *TEAM).returncode == 0
            assert call_massmem("sessions", "export", next(iter(texts)), "--to", f"{name}.json", *TEAM).returncode == 0
        assert call_massmem("keys", "set", "mistral", stdin=b"sk-mistral-0123456789").returncode == 0
    team = Path(place / "team.yaml").read_text().replace("embedding", "session_name: null, embedding")
    (place / "team.yaml").write_text(team)
    bob = team.partition("[")[2].partition("]")[0].replace("ann", "bob")
    (place / "two.yaml").write_text(team.replace("agents: [", f"agents: [{bob}, "))
    (place / "data.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in ITEMS))
    shutil.copy(place / "home" / ".massmem" / "massmem.db", place / "damaged.db")
    return place


def run_case(case: Case, template: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what went wrong; "": nothing."""
    shutil.copytree(template, place)
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place / "home"))
    ids = {text.split()[1].upper(): memory["id"] for text, memory in memories().items()}
    if "--force" in case.commands[0]:
        (folder() / "config.yaml").write_text("agents: []  # mine")
    words = {"A": A, "B": B, "HOME": str(folder()), **ids}
    commands = [tuple(shlex.split(command.format(**words))) for command in case.commands]
    commands = [one if WITHOUT_TEAM & {*one} else (*one, *TEAM) for one in commands]
    ends = run_at_once(*commands, stdin="sk-0123456789-{}\n")
    reports = [f"{end.returncode}: {end.stderr[-300:]}" for end in ends]
    if tuple(sorted(end.returncode for end in ends)) not in case.codes:
        return f"codes: {reports}"
    if any("Traceback" in end.stderr or (end.returncode and "massmem: " not in end.stderr) for end in ends):
        return f"no sentence: {reports}"
    try:
        return "" if case.is_right(ends) else f"not what they report: {reports} {[end.stdout[:300] for end in ends]}"
    except (AssertionError, LookupError, OSError, ValueError) as e:
        return f"{type(e).__name__} {str(e)[:300]}: {reports}"


ROUNDS = [(name, 2) for name in sorted(SHORT)] + [pytest.param(name, 5, marks=pytest.mark.full) for name in CASES]


@pytest.mark.parametrize(("name", "rounds"), ROUNDS)
def test_two_commands_at_once(
    name: str, rounds: int, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for provider in ("OPENAI", "MISTRAL"):
        monkeypatch.setenv(f"{provider}_API_KEY", "sk-0123456789")
    wrong = [run_case(CASES[name], template, tmp_path / f"r{number}", monkeypatch) for number in range(rounds)]
    if any(wrong):
        pytest.fail("\n".join(filter(None, wrong)))
