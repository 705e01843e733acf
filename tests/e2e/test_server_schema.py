"""The service keeps to its own description, whatever it is sent: schemathesis, with every request on a real process."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import Service, agent, team

pytestmark = pytest.mark.slow

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "use_after_free,ignored_auth"
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = {"requests": 10_000_000, "turns_per_user": 100}
    config = team(agent("ann", "So it is."), server={"limits": limits}, memory={"enabled": False})
    started = Service(tmp_path_factory.mktemp("schema"), config).start()
    yield started
    assert started.stop() == 0
    assert [line for line in started.lines() if line["level"] == "error"] == []


@pytest.mark.parametrize("examples", [3, pytest.param(650, marks=pytest.mark.full)])
@pytest.mark.parametrize("token", ["with", "without"])
def test_every_answer_is_as_described(service: Service, tmp_path: Path, token: str, examples: int) -> None:
    document = tmp_path / "openapi.json"
    client = service.as_("fuzz", "admin")
    document.write_text(client.get("/openapi.json").text)
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", str(document), "--url", service.url,
        "--checks", CHECKS, "--max-examples", str(examples), "--phases", "examples,coverage,fuzzing,stateful",
        "--request-timeout", "30", "--seed", "1", "--generation-deterministic", "--no-color",
    ]  # fmt: skip
    if token == "with":
        command += ["--header", f"Authorization: Bearer {client.token}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3_000, check=False, cwd=tmp_path)
    print(done.stdout[-3_000:])
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    sent = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    links = re.search(r"API Links: +(\d+) covered", done.stdout)
    assert sent is not None, done.stdout[-2_000:]
    assert sent[1] == sent[2]
    assert int(sent[1]) >= 8 * examples  # some routes take nothing that could be varied
    print(f"{token} token: {sent[0]}, {'' if links is None else links[0]}")
    assert token == "without" or (links is not None and int(links[1]) >= 3)
