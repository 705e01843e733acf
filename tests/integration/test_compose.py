"""configs/compose: what its files say of each other, since no container is built here.

tests/faults/test_balancer_kill.py runs its parts together.
"""

import json
import re
import tomllib
from importlib.metadata import metadata, requires
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from massmem.config.models import ServerConfig
from scripts.docs import help_text
from tests.faults.test_balancer_kill import CONFIG

FOLDER = Path(__file__).parents[2] / "configs" / "compose"
ROOT = FOLDER.parents[1]
RECIPE = (FOLDER / "Containerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
TEAM: dict[str, Any] = yaml.safe_load((FOLDER / "team.yaml").read_text())
QDRANT: dict[str, Any] = yaml.safe_load((FOLDER.parents[1] / "docker-compose.qdrant.yml").read_text())
SERVICES = ("one", "two", "three")


def test_image_has_every_package_that_the_team_needs() -> None:
    extras = COMPOSE["services"]["one"]["build"]["args"]["EXTRAS"].split(",")
    needed = {"server", "mcp"}
    needed |= {"postgres"} if TEAM["store"]["url"].startswith("postgresql") else set()
    needed |= {"redis"} if TEAM["server"]["limits"]["counted_in"].startswith("redis") else set()
    needed |= {"mem0"} if TEAM["memory"]["persistent_memory"]["qdrant"]["mode"] == "server" else set()
    assert needed <= set(extras)
    offered = set(metadata("massmem").get_all("Provides-Extra") or ())
    assert {*extras, *re.findall(r"ARG EXTRAS=([\w,]+)", RECIPE)[0].split(",")} <= offered


def test_recipe_takes_files_that_are_there_and_runs_a_command_of_massmem() -> None:
    steps = [(word, rest) for word, _, rest in (step.partition(" ") for step in read_steps(RECIPE))]
    assert {word for word, _ in steps} <= {
        "FROM", "RUN", "USER", "WORKDIR", "COPY", "ARG", "ENV", "EXPOSE", "HEALTHCHECK", "CMD"
    }  # fmt: skip
    words = [word for word, _ in steps]
    assert steps[words.index("USER")][1] == "massmem", "it has no rights"
    assert words.index("USER") < words.index("COPY"), "and needs none to install"
    taken = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / name).exists() for name in taken)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed = {*project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"], "configs", "README.md", "LICENSE"}
    assert taken >= packed | {"pyproject.toml", "scripts/install"}
    run = [rest for word, rest in steps if word == "RUN"]
    assert "MASSMEM_EXTRAS=$EXTRAS scripts/install" in run[-1]
    command = json.loads(dict(steps)["CMD"])
    assert command[:2] == ["massmem", "serve"]
    assert all(part in help_text("serve") for part in command[2:] if part.startswith("--"))
    check = json.loads(dict(steps)["HEALTHCHECK"].partition("CMD")[2])
    assert f":{ServerConfig().port}/healthz'" in check[-1]
    assert dict(steps)["EXPOSE"] == str(ServerConfig().port)
    compile(check[-1], "HEALTHCHECK", "exec")


def read_steps(recipe: str) -> list[str]:
    text = re.sub(r"^#.*\n", "", recipe, flags=re.MULTILINE).replace("\\\n", "")
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_hosts_and_variables_of_one_file_are_defined_in_the_other() -> None:
    services = COMPOSE["services"]
    persistent, server = TEAM["memory"]["persistent_memory"], TEAM["server"]
    urls = (TEAM["store"]["url"], persistent["qdrant"]["url"], server["limits"]["counted_in"])
    assert [re.sub(r".*@", "", urlsplit(url).netloc).split(":")[0] for url in urls] == ["postgres", "qdrant", "redis"]
    assert {"postgres", "qdrant", "redis"} <= services.keys()
    assert set(re.findall(r"\$\{(\w+)\}", (FOLDER / "team.yaml").read_text())) <= services["one"]["environment"].keys()
    balancer = services["balancer"]["environment"]
    assert set(re.findall(r"\$\{(\w+)\}", (FOLDER / "haproxy.cfg").read_text())) == balancer.keys()
    assert [balancer[f"MASSMEM_{name.upper()}"] for name in SERVICES] == [f"{name}:4000" for name in SERVICES]


def test_services_have_the_time_to_hand_over_their_questions() -> None:
    grace = TEAM["server"].get("grace", ServerConfig().grace)
    for name in (*SERVICES, "worker"):
        assert int(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s")) > grace + 10
    assert TEAM["server"]["record"] is False, "the worker records"


@pytest.mark.parametrize("compose", [COMPOSE, QDRANT], ids=["compose.yaml", "docker-compose.qdrant.yml"])
def test_every_service_is_pinned_checked_and_restarted(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        assert "build" not in service or service["build"]["dockerfile"] == "configs/compose/Containerfile"
        dockerfile = RECIPE if "build" in service else f"FROM {service['image']}"
        images = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
        assert all(re.search(r":v?\d+\.\d+", image) for image in images), (name, images)
        assert service["restart"] == "unless-stopped"
        check = service["healthcheck"]
        assert check == {"disable": True} if name == "worker" else check["test"][0] in ("CMD", "CMD-SHELL")
        for needed, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert not services[needed]["healthcheck"].get("disable"), f"{name} would wait for {needed} for ever"
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} is open to others: {port}"
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (FOLDER / source).is_file() if source.startswith(".") else source in compose["volumes"]


@pytest.mark.parametrize("compose", [COMPOSE, QDRANT], ids=["compose.yaml", "docker-compose.qdrant.yml"])
def test_qdrant_is_of_the_minor_version_that_the_client_is_made_for(compose: dict[str, Any]) -> None:
    image = compose["services"]["qdrant"]["image"]
    requirement = next(line for line in requires("massmem") or () if line.startswith("qdrant-client"))
    minor = re.search(r"\d+\.\d+", requirement)
    assert minor is not None
    assert image.startswith(f"qdrant/qdrant:v{minor[0]}.")


def test_service_is_started_and_checked_at_the_port_that_the_balancer_asks() -> None:
    services = COMPOSE["services"]
    for name in SERVICES:
        options = services[name]["command"]
        assert options[:2] == ["massmem", "serve"]
        assert options[options.index("--host") + 1] == "0.0.0.0"
        assert "--port" not in options
        assert f":{ServerConfig().port}/readyz" in services[name]["healthcheck"]["test"][-1]
        assert f"{options[options.index('--config') + 1]}:ro" == services[name]["volumes"][0].partition(":")[2]
    assert ServerConfig().port == 4000, "as MASSMEM_ONE and so on say"


def test_balancer_of_the_kill_test_is_the_one_that_is_mounted() -> None:
    mounted = COMPOSE["services"]["balancer"]["volumes"][0].partition(":")[0]
    assert (FOLDER / mounted).resolve() == CONFIG
