"""The service keeps to its OpenAPI description, whatever it is sent: schemathesis against a real process."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import Service, make_agent, make_config

pytestmark = pytest.mark.slow

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "use_after_free,ignored_auth"
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = {"requests": 10_000_000, "wrong_keys": 10_000_000, "turns_per_user": 100}
    config = make_config(make_agent("ann", "So it is."), server={"limits": limits}, memory={"enabled": False})
    service = Service(tmp_path_factory.mktemp("schema"), config).start()
    yield service
    assert service.stop() == 0
    assert [line for line in service.read_log() if line["level"] == "error"] == []


@pytest.mark.parametrize("examples", [3, pytest.param(650, marks=pytest.mark.full)])
@pytest.mark.parametrize("token", ["with", "without"])
def test_every_response_is_as_described(service: Service, tmp_path: Path, token: str, examples: int) -> None:
    document = tmp_path / "openapi.json"
    client = service.client("fuzz", "admin")
    description = client.get("/openapi.json")
    document.write_text(description.text)
    operations = sum(len(methods) for methods in description.json()["paths"].values())
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", str(document), "--url", service.url,
        "--checks", CHECKS, "--max-examples", str(examples), "--phases", "examples,coverage,fuzzing,stateful",
        "--request-timeout", "30", "--seed", "1", "--generation-deterministic", "--no-color",
    ]  # fmt: skip
    if token == "with":
        command += ["--header", f"Authorization: Bearer {client.token}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=3_000, check=False, cwd=tmp_path)
    print(run.stdout[-3_000:])
    assert run.returncode == 0, run.stdout[-6_000:] + run.stderr[-2_000:]
    assert f"Tested: {operations}\n" in run.stdout, "every route, and none in vain"
    cases = re.search(r"(\d+) generated, (\d+) passed", run.stdout)
    links = re.search(r"API Links: +(\d+) covered", run.stdout)
    assert cases is not None, run.stdout[-2_000:]
    assert cases[1] == cases[2]
    assert int(cases[1]) >= 8 * examples  # some routes take nothing that could be varied
    print(f"{token} token: {cases[0]}, {'' if links is None else links[0]}")
    # Few examples seldom hold a model that there is, from whose answer links lead on.
    assert token == "without" or (links is not None and int(links[1]) >= (3 if examples > 100 else 1))
