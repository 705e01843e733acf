from pathlib import Path

from massmem.cli.checks import DoctorContext
from massmem.cli.checks.machine import Requirement, check_disk, check_packages, read_requirements


def test_requirements_are_read_from_the_metadata():
    minimum = {(r.name, r.extra): r.minimum for r in read_requirements()}
    assert minimum["pydantic", ""] == "2.14"
    assert minimum["xllamacpp", "local"] == "2026.10"
    assert minimum["psycopg", "postgres"] == "3.3.9"
    assert {extra for _, extra in minimum} >= {"", "local", "memory", "postgres", "redis", "server"}


def test_missing_and_old_packages_are_problems():
    assert Requirement("pydantic", "2.0").find_problem() == ""
    assert Requirement("pydantic", "99").find_problem().endswith(" is older than 99")
    assert Requirement("no-such-package-at-all").find_problem() == "no-such-package-at-all is not installed"


async def test_this_installation_is_complete(tmp_path: Path):
    (result,) = await check_packages(DoctorContext(tmp_path, {}))
    assert result.status == "ok", result
    assert "local: installed" in result.details


async def test_disk_of_a_home_that_does_not_exist(tmp_path: Path):
    (result,) = await check_disk(DoctorContext(tmp_path / "a" / "b", {}))
    assert result.text.endswith(f"MB free in {tmp_path}")
