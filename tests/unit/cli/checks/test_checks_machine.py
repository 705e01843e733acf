from pathlib import Path

from massmem.cli.checks.finding import Situation
from massmem.cli.checks.machine import Required, check_disk, check_packages, required


def test_what_the_package_needs_is_read_from_its_own_metadata():
    every = {(each.name, each.extra): each.least for each in required()}
    assert every["pydantic", ""] == "2.14"
    assert every["xllamacpp", "local"] == "2026.10"
    assert every["psycopg", "postgres"] == "3.3.9"
    assert {extra for _, extra in every} >= {"", "local", "memory", "postgres", "redis", "server"}


def test_a_package_that_is_missing_or_old():
    assert Required("pydantic", "2.0").problem() == ""
    assert Required("pydantic", "99").problem().endswith(" is older than 99")
    assert Required("no-such-package-at-all").problem() == "no-such-package-at-all is not installed"


async def test_this_installation_is_whole(tmp_path: Path):
    (found,) = await check_packages(Situation(tmp_path, {}))
    assert found.status == "ok", found
    assert "local: installed" in found.details


async def test_the_disk_of_a_home_that_is_not_made_yet(tmp_path: Path):
    (found,) = await check_disk(Situation(tmp_path / "a" / "b", {}))
    assert found.text.endswith(f"MB free in {tmp_path}")
