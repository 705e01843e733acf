"""The documentation is true: its commands and programs run, its configurations load, its links and paths exist."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from massmem.cli.commands import COMMANDS
from massmem.config.jobs import read_job
from massmem.config.load import load_config
from massmem.session.registry import Registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN_ONLY = {"text"}
"""Languages of blocks that show output; all others are run or loaded."""

LIMIT = 300
"""Seconds for a command, which takes a few: on a busy machine it takes a minute."""

NOT_RUN = {
    "scripts/run": "it downloads the 1.1 GB model; tests/integration runs that model",
    "scripts/test": "it is this test run",
    "scripts/install": "it has made the environment of this test run",
    "git clone": "it needs a network; these tests run in a clone",
    "uv tool install": "it changes the user's programs; scripts/build installs the wheel",
    "pipx install": "it changes the user's programs; scripts/build installs the wheel",
    "@examples/local": "it runs the 1.1 GB model; scripts/build asks it",
    "podman ": "no container is built here; tests/integration/test_compose.py reads the recipe",
    "pip install": "it changes the environment of this test run; CI installs massmem",
    "/zensical": "scripts/check builds the site",
    "/cog": "scripts/check runs it",
    "@examples/mixed": "it needs keys",
    "@examples/ollama": "it needs a running Ollama",
    '"It is O-12345"': "it replies to a turn that waits; tests/e2e/test_waiting_for_params.py has one",
    "--schema": "the scripted team writes no JSON; tests/e2e/test_cli.py has a team that does",
    "massmem -i": "the picture is the user's; tests/e2e/test_cli.py has one",
    "massgen.yaml": "it is a file of the user; tests/unit/config/test_massgen.py has some",
    "-f https://": "it needs a network; tests/unit/tools/test_addresses.py has a server",
    "massmem init": "the user has a configuration; tests/integration has init",
    "massmem ui": "it serves until it is stopped; tests/integration/test_ui.py uses it",
    "massmem serve": "it serves until it is stopped; tests/e2e/test_server_clients.py uses it",
    "curl ": "it needs the service of the block before; tests/e2e/test_server_clients.py has curl",
    "massmem keys set": "it asks for a key; tests/unit/cli/test_cli_keys.py stores one",
    "massmem --resume": "it lets the user choose at a terminal; tests/e2e/test_interactive.py does",
    "-m ollama/": "it needs a running Ollama",
    "export OPENAI": "it sets a variable only",
    "export TOKEN": "it needs the secret of the block before; tests/e2e/test_server_clients.py makes tokens",
}
"""Parts of commands that no test here runs, with the reason."""


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str


def read_blocks() -> list[Block]:
    """Return every fenced block of the documentation."""
    blocks: list[Block] = []
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 1
            blocks.append(Block(str(page.relative_to(ROOT)), line, match[1], match[2]))
    return blocks


def in_language(language: str) -> list[object]:
    """Return one parameter per block in this language, with its page and line as id."""
    return [pytest.param(b.text, id=f"{b.page}:{b.line}") for b in read_blocks() if b.language == language]


@pytest.fixture(scope="module")
def used_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose configuration is the scripted team, at full speed, with one session in it."""
    home = tmp_path_factory.mktemp("used")
    (home / ".massmem").mkdir()
    team = (ROOT / "configs" / "scripted.yaml").read_text()
    (home / ".massmem" / "config.yaml").write_text(re.sub(r"(latency|chunk_delay): [\d.]+", r"\1: 0", team))
    subprocess.run(
        [sys.executable, "-m", "massmem", "hello"], env=os.environ | {"HOME": str(home)}, check=True, timeout=60
    )
    return home


@pytest.fixture
def user(used_home: Path, tmp_path: Path) -> Path:
    """A copy of it: what a block deletes is there for the next one."""
    return shutil.copytree(used_home, tmp_path / "user")


@pytest.mark.slow
@pytest.mark.parametrize("block", in_language("bash"))
def test_commands_run(block: str, user: Path, subtests: pytest.Subtests):
    # In order: a command may build on those above it in its block.
    for line in block.splitlines():
        command = re.split(r"  +#", line)[0].rstrip()
        if command:
            with subtests.test(command):
                run_command(command, user)


def run_command(command: str, user: Path) -> None:
    for part, reason in NOT_RUN.items():
        if part in command:
            pytest.skip(f"{command}: {reason}")
    session_id = Registry(user / ".massmem").read_entries()[-1].session_id
    command = re.sub(r"session_\d{8}_\d{6}", session_id, command)
    if command.endswith(session_id):
        pytest.skip(f"{command}: the session has no unfinished turn; tests/integration/test_session.py has one")
    command = re.sub(r"(^|[|(] *)massmem ", rf"\1{shlex.quote(sys.executable)} -m massmem ", command)
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT, env=os.environ | {"HOME": str(user)}, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    # What only reports on its work, as `memory rebuild` does, does it on stderr.
    assert (result.stdout or result.stderr).strip()
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("block", in_language("yaml"))
def test_configurations_load(block: str, tmp_path: Path):
    path = tmp_path / "team.yaml"
    path.write_text(block)
    if block.startswith("# .massmem/jobs/"):
        assert read_job(path).config.items.task
        return
    config, warnings = load_config(path, {})
    assert len(config.agents) == len(yaml.safe_load(block)["agents"])
    assert warnings == []


@pytest.mark.parametrize("block", in_language("python"))
def test_programs_run(block: str, tmp_path: Path):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        cwd=tmp_path, env=os.environ | {"HOME": str(tmp_path)}, capture_output=True, text=True, timeout=LIMIT,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_every_block_has_a_language_that_is_tested():
    languages = {"bash", "yaml", "python"} | SHOWN_ONLY
    assert [f"{b.page}:{b.line}" for b in read_blocks() if b.language not in languages] == []


def test_reasons_for_commands_that_are_not_run_are_used():
    commands = "\n".join(b.text for b in read_blocks() if b.language == "bash")
    assert [part for part in NOT_RUN if part not in commands] == []


MODEL_NAME = re.compile(r"massmem/(default|TEAM|TEAM/AGENT)")
"""How clients of OpenAI's API call a team and an agent."""


def test_paths_in_the_text_exist():
    missing: list[str] = []
    for page in PAGES:
        for path in re.findall(r"(?<![\w/.~-])(?:massmem|scripts|tests|configs|docs)/[\w/.-]*\w", page.read_text()):
            if not (ROOT / path).exists() and not MODEL_NAME.fullmatch(path):
                missing.append(f"{page.name}: {path}")
    assert missing == []


def test_commits_that_are_named_as_examples_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named: list[tuple[str, str]] = re.findall(r"`([0-9a-f]{8})` (.+?) \|$", text, re.MULTILINE)
    assert named
    if run_git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this checkout is without its history")
    for commit, subject in named:
        assert run_git("log", "-1", "--format=%s", commit) == subject, commit


def run_git(*arguments: str) -> str:
    """Return what git prints of this checkout; empty when it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def test_walks_enter_each_module_once():
    text = (ROOT / "docs" / "architecture.md").read_text()
    walks = re.split(r"^### ", text.partition("## Five walks")[2].partition("\n## ")[0], flags=re.MULTILINE)[1:]
    for walk in walks:
        modules = re.findall(r"^\d+\. `([\w/.]+)`", walk, re.MULTILINE)
        assert modules
        assert len({*modules}) == len(modules), walk.partition("\n")[0]
    assert len(walks) == 5


def test_links_outside_the_site_lead_to_files():
    for page in PAGES[:2]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (ROOT / target).exists(), target


def test_every_page_and_picture_of_the_site_exists_and_is_linked():
    nav = str(tomllib.loads((ROOT / "docs" / "zensical.toml").read_text())["project"]["nav"])
    for page in (ROOT / "docs").glob("*.md"):
        assert repr(page.name) in nav, page.name
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text()):
            assert (ROOT / "docs" / picture).exists(), picture


def test_readme_is_for_the_first_hour():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 250


def test_readme_prints_how_many_tests_there_are(request: pytest.FixtureRequest):
    # What is collected is known without another run: this is a part of the suite.
    config = request.config
    folders = {Path(argument).resolve() for argument in config.args}
    if folders != {ROOT / "tests"} or config.option.markexpr != "not full and not slow" or config.option.keyword:
        pytest.skip("this run is not the whole of scripts/test")
    printed = re.search(r"=+ (\d+) passed, (\d+) skipped in ", (ROOT / "README.md").read_text())
    assert printed is not None
    count = len(request.session.items)
    assert abs(int(printed[1]) + int(printed[2]) - count) <= 0.02 * count


def test_every_command_and_script_is_documented():
    text = "\n".join(page.read_text() for page in PAGES)
    for name in COMMANDS:
        assert f"\n## massmem {name}\n" in text, name
    for path in (ROOT / "scripts").iterdir():
        if path.is_file() and not path.suffix:
            assert f"scripts/{path.name}" in text, path.name


def test_the_license_is_the_apache_license():
    assert "Apache License\n                        Version 2.0" in (ROOT / "LICENSE").read_text()
