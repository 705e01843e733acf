"""Two hundred secrets said, sent, quoted and configured: none of them in any file or line that somebody may pass on."""

import json
import stat
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from massmem.cli.main import main
from tests.support.cli import massmem, script, write_team
from tests.support.json_server import json_server
from tests.support.secrets import Seeded, draw_secrets, find_leaks

pytestmark = pytest.mark.slow

SECRETS = draw_secrets()
PIECES = 7
"""Characters of a chunk: every secret is split over several."""


def texts_below(*folders: Path) -> dict[Path, str]:
    """What files hold; databases and indexes aside, which keep what was said."""
    return {
        path: path.read_text(errors="replace")
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not {".db", ".db-wal", ".db-shm"} & {path.suffix} and "memory" not in path.parts
    }


def assert_private(*folders: Path) -> None:
    """Files 0600, folders 0700."""
    for folder in folders:
        for path in [folder, *folder.rglob("*")]:
            mode = stat.S_IMODE(path.lstat().st_mode)
            assert mode & 0o077 == 0, f"{path}: {mode:o}"


def assert_none(where: dict[Any, str], secrets: list[Seeded]) -> None:
    leaks = {str(place): find_leaks(text, secrets) for place, text in where.items()}
    assert not {place: texts for place, texts in leaks.items() if texts}


def quoting_server(texts: list[str]) -> AbstractContextManager[str]:
    """A server that answers the n-th request with an error that quotes the n-th text."""
    left = iter(texts)
    lock = threading.Lock()

    def answer() -> tuple[int, object]:
        with lock:
            said = next(left, "no more")
        return 401, {"error": {"message": f"rejected: {said} is not allowed here", "type": "x"}}

    return json_server(answer)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir(mode=0o700)
    monkeypatch.chdir(folder)
    return folder


def test_secrets_of_a_conversation_stay_out_of_logs_debug_files_and_exports(tmp_path: Path, home: Path, work: Path):
    said = "\n".join(f"{i}. {secret.text}" for i, secret in enumerate(SECRETS))
    one, two = (script(f"{name} says\n{said}", present=f"In the end\n{said}", chunk_size=PIECES) for name in "ab")
    telemetry = {"stages": str(work / "stages.jsonl")}
    team = write_team(tmp_path, one, two, telemetry=telemetry, memory={})
    ran = massmem("--config", team, "--debug", f"What of these?\n{said}", timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert len(find_leaks(ran.stdout.decode(), SECRETS)) == len(SECRETS)  # what agents say is shown as it is
    assert massmem("--config", team, "--continue", "--debug", "And these?", timeout=60).returncode == 0
    session = json.loads(massmem("--list-sessions", "--json").stdout)
    name = (session["sessions"] if isinstance(session, dict) else session)[0]["session_id"]
    files = texts_below(home, work)
    assert any("massmem_logs" in str(path) for path in files)
    exports: dict[Any, str] = {
        form: massmem("sessions", "export", name, "--format", form).stdout.decode()
        for form in ("markdown", "json", "html", "text")
    }
    assert all("In the end" in text for text in exports.values())
    assert_none({**files, **exports, "stderr": ran.stderr.decode()}, SECRETS)
    assert_private(home / ".massmem", work)


@pytest.mark.parametrize(
    "output", ["jsonl", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("plain", "json"))]
)
def test_errors_that_quote_secrets_are_told_without_them(tmp_path: Path, home: Path, work: Path, output: str):
    pairs = zip(SECRETS[::2], SECRETS[1::2], strict=True)
    with quoting_server([f"{one.text} and {two.text}" for one, two in pairs]) as url:
        backend = {"type": "openai", "model": "m", "base_url": url, "api_key": SECRETS[0].value, "max_retries": 0}
        agents = [{"id": f"a{i}", "backend": backend} for i in range(100)]
        path = tmp_path / "team.yaml"
        path.write_text(json.dumps({"agents": agents, "telemetry": {"stages": str(work / "stages.jsonl")}}))
        ran = massmem("--config", str(path), "--output", output, "--debug", "Why?", timeout=120)
    assert b"not allowed here" in ran.stdout + ran.stderr
    spoken: dict[Any, str] = {"stdout": ran.stdout.decode(), "stderr": ran.stderr.decode()}
    assert_none({**texts_below(home, work), **spoken}, SECRETS)
    assert_private(home / ".massmem", work)


def test_a_value_that_was_asked_for_is_in_no_log(tmp_path: Path, home: Path, work: Path):
    asking = {"answer": {"ask": "access_code", "text": "Thank you."}}
    team = write_team(
        tmp_path, asking, params={"access_code": {"pattern": r"\S+"}}, telemetry={"stages": str(work / "stages.jsonl")}
    )
    values = [Seeded("Xq-77-plain-value", "Xq-77-plain-value"), SECRETS[0]]
    for secret in values:
        first = massmem("--config", team, "--debug", "Open it.")
        assert first.returncode == 6
        second = massmem("--config", team, "--debug", "--continue", secret.text)
        assert second.returncode == 0, second.stderr
        assert_none({"stderr": second.stderr.decode()}, [secret])
    assert_none(texts_below(home, work), values)


def test_configurations_that_are_refused_show_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for secret in SECRETS:
        path = tmp_path / "team.yaml"
        backend = {"type": "openai", "model": "m", "api_key": secret.value, "base_ulr": secret.text}
        broken = {"agents": [{"id": "a", "backend": backend}], "store": {"url": secret.text}, "nonsense": secret.text}
        path.write_text(json.dumps(broken))
        assert main(["--config", str(path), "--output", "json", "Why?"]) == 2
        told = capsys.readouterr()
        assert "base_ulr" in told.err
        assert_none({"stdout": told.out, "stderr": told.err}, [secret])
