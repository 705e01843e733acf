"""Files of jobs: whose comes first, what they change in a team, and what is wrong with them."""

from pathlib import Path

import pytest

from massmem.config.jobs import find_job, list_jobs, read_job
from massmem.config.models import AgentSpec, TeamConfig
from massmem.core.errors import ConfigError, InputError
from massmem.turn.revise import RUNS

SHIPPED = sorted(path.stem for path in (Path(__file__).parents[3] / "massmem" / "jobs").glob("*.yaml"))
ROLES = """\
summary: Two look at it.
items: {kinds: [tip], places: false}
roles:
  - {id: one, task: Look left.}
  - {id: two, task: Look right.}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def team(*ids: str) -> TeamConfig:
    agents = [AgentSpec.model_validate({"id": i, "backend": {"type": "scripted"}, "system_message": i}) for i in ids]
    return TeamConfig(agents=tuple(agents))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_job_can_be_done(name: str, tmp_path: Path) -> None:
    job = find_job(name, tmp_path, "")
    assert job.config.shape in RUNS and job.config.rubric and "\n" not in job.config.summary
    applied = job.apply(team("ann", "ben"))
    assert (applied.job, applied.coordination.shape) == (name, job.config.shape)


def test_the_jobs_of_a_project_take_the_place_of_ones_own_and_these_of_shipped_ones(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    assert list(list_jobs(home, "")) == SHIPPED
    own = write(home / "jobs", "decide", "summary: mine")
    assert find_job("decide", home, str(project)).path == own
    shared = write(project / ".massmem" / "jobs", "decide", "summary: ours")
    assert find_job("decide", home, str(project)).config.summary == "ours"
    assert (list_jobs(home, "")["decide"], list_jobs(home, str(project))["decide"]) == (own, shared)


def test_agents_take_the_roles_in_turn_and_keep_their_own_instructions(tmp_path: Path) -> None:
    job = read_job(write(tmp_path, "look", ROLES))
    agents = job.apply(team("ann", "ben", "cyd")).agents
    assert [(agent.id, agent.system_message) for agent in agents] == [
        ("ann", "ann\n\nLook left."), ("ben", "ben\n\nLook right."), ("cyd", "cyd\n\nLook left."),
    ]  # fmt: skip
    assert job.describe_cast(team("ann", "ben")) == ""


def test_a_single_model_plays_all_roles(tmp_path: Path) -> None:
    job = read_job(write(tmp_path, "look", ROLES))
    agents = job.apply(team("ann")).agents
    assert [(agent.id, agent.system_message) for agent in agents] == [
        ("one", "ann\n\nLook left."), ("two", "ann\n\nLook right."),
    ]  # fmt: skip
    assert "one model plays all roles (one, two)" in job.describe_cast(team("ann"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("shape: union", "summary: Field required"),
        ("summary: x\nshape: chorus", ":2: shape: Input should be"),
        ("summary: x\nitemz: {}", ":2: itemz: unknown key"),
        ("summary: x\nroles:\n  - {id: a b, task: y}", ":3: roles.0.id: "),
        ("summary: x\nroles: [{id: a, task: y}, {id: a, task: z}]", "two roles have the same id"),
        ("summary: [", "not valid YAML"),
        ("- a list", "must be a mapping"),
    ],
)
def test_a_problem_names_the_file_and_the_line(text: str, problem: str, tmp_path: Path) -> None:
    path = write(tmp_path, "broken", text)
    with pytest.raises(ConfigError) as raised:
        read_job(path)
    assert str(path) in raised.value.problems[0] and problem in raised.value.problems[0]


@pytest.mark.parametrize("name", ["decid", "../decide", "", "x" * 5_000])
def test_a_job_that_is_missing_is_refused_with_those_there_are(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no job") as raised:
        find_job(name, tmp_path, "")
    assert "brainstorm, decide" in str(raised.value) and len(str(raised.value)) < 300
