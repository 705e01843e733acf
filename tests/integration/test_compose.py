"""configs/compose: what its files say of each other. tests/faults/test_balancer_kill.py runs its parts together."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from massmem.config.models import ServerConfig

FOLDER = Path(__file__).parents[2] / "configs" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
TEAM: dict[str, Any] = yaml.safe_load((FOLDER / "team.yaml").read_text())
SERVICES = ("one", "two", "three")


def test_image_has_every_package_that_the_team_needs() -> None:
    dockerfile = COMPOSE["services"]["one"]["build"]["dockerfile_inline"]
    match = re.search(r"/src\[([\w,]+)\]", dockerfile)
    assert match is not None
    needed = {"server", "mcp"}
    needed |= {"postgres"} if TEAM["store"]["url"].startswith("postgresql") else set()
    needed |= {"redis"} if TEAM["server"]["limits"]["counted_in"].startswith("redis") else set()
    needed |= {"memory"} if TEAM["memory"]["persistent_memory"]["qdrant"]["mode"] == "server" else set()
    assert needed <= set(match[1].split(","))


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
