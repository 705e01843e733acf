"""`massmem skill install`: what it writes for each program, beside what its user has there."""

import json
import stat
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

import massmem
from tests.support.cli import call_massmem

PROGRAMS = ["claude", "codex", "opencode", "cursor"]
SETTINGS = {
    "claude": (".claude.json", ".mcp.json"),
    "codex": (".codex/config.toml", ".codex/config.toml"),
    "opencode": (".config/opencode/opencode.json", "opencode.json"),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json"),
}
SKILLS = {
    "claude": (".claude/skills", ".claude/skills"),
    "codex": (".agents/skills", ".agents/skills"),
    "opencode": (".config/opencode/skills", ".opencode/skills"),
    "cursor": (".cursor/skills", ".cursor/skills"),
}
OWN = {
    "claude": '{"mcpServers": {"own": {"command": "x"}}, "theme": "dark"}',
    "codex": '# mine\nmodel = "gpt-5"\n\n[mcp_servers.own]\ncommand = "x"\n',
    "opencode": '{"model": "own/x", "mcp": {"own": {"type": "remote", "url": "http://x"}}}',
    "cursor": '{"mcpServers": {"own": {"command": "x"}}}',
}


def install(*options: str) -> str:
    ran = call_massmem("skill", "install", *options)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode()


def list_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("in_project", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_skill_and_server_stand_beside_what_is_there_and_a_second_run_changes_nothing(
    program: str, in_project: bool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = tmp_path if in_project else home
    settings = base / SETTINGS[program][in_project]
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(OWN[program])
    settings.chmod(0o640)
    options = [f"--{program}", *(["--project"] if in_project else [])]
    shown = install(*options)
    text = settings.read_text()
    data = tomllib.loads(text) if program == "codex" else json.loads(text)
    servers = data.get("mcpServers") or data.get("mcp_servers") or data["mcp"]
    assert servers.keys() == {"own", "massmem"}
    command = servers["massmem"]["command"]
    assert (command[-1] == "mcp") if program == "opencode" else (servers["massmem"]["args"] == ["mcp"])
    path = command[0] if program == "opencode" else command
    assert path == "massmem" if in_project else Path(path).is_absolute()
    assert {"theme", "model"} & data.keys() or program == "cursor"
    assert text.startswith("# mine\n") or program != "codex"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o640
    skill = base / SKILLS[program][in_project] / "massmem" / "SKILL.md"
    head = yaml.safe_load(skill.read_text().split("---\n")[1])
    assert head["name"] == "massmem"
    assert len(head["description"]) < 1_000
    for place in (settings, skill):
        assert f"{place.resolve()}: wrote" in shown
    before = list_files(base)
    assert "wrote" not in install(*options)
    assert list_files(base) == before


@pytest.mark.parametrize("text", ['{"mcp": {} // mine\n}', "[1]", '{"mcp": [1]}', "\xff"])
def test_settings_that_cannot_be_merged_stay_as_they_are(text: str, home: Path) -> None:
    settings = home / ".config" / "opencode" / "opencode.jsonc"
    settings.parent.mkdir(parents=True)
    settings.write_bytes(text.encode("latin-1"))
    ran = call_massmem("skill", "install", "--opencode")
    assert ran.returncode == 2
    assert b"opencode.jsonc is no plain JSON, and stays as it is" in ran.stderr
    assert b'add: {"mcp": {"massmem": {"type": "local"' in ran.stderr
    assert settings.read_bytes() == text.encode("latin-1")


def test_inline_table_of_codex_is_not_broken(home: Path) -> None:
    settings = home / ".codex" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('mcp_servers = {own = {command = "x"}}\n')
    ran = call_massmem("skill", "install", "--codex")
    assert ran.returncode == 2
    assert b"[mcp_servers.massmem]" in ran.stderr
    assert settings.read_text() == 'mcp_servers = {own = {command = "x"}}\n'


def test_entry_of_the_user_and_a_link_to_the_settings_stay(home: Path, tmp_path: Path) -> None:
    own = tmp_path / "dotfiles.json"
    own.write_text('{"mcpServers": {"massmem": {"command": "mine"}}}')
    (home / ".claude.json").symlink_to(own)
    assert "has a server massmem" in install("--claude")
    assert own.read_text() == '{"mcpServers": {"massmem": {"command": "mine"}}}'
    own.write_text("{}")
    install("--claude")
    assert (home / ".claude.json").is_symlink()
    assert "massmem" in own.read_text()


def test_programs_on_the_path_are_the_default(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    ran = call_massmem("skill", "install")
    assert (ran.returncode, b"massmem skill install --claude" in ran.stderr) == (2, True)
    (folder / "codex").write_text("#!/bin/sh\n")
    (folder / "codex").chmod(0o755)
    install()
    assert not (home / ".claude.json").exists()
    assert (home / ".codex" / "config.toml").exists()


def test_server_json_has_what_the_registry_of_mcp_demands() -> None:
    """As its schema has it, and its page on requirements."""
    root = Path(__file__).parents[2]
    server = json.loads((root / "server.json").read_text())
    schema = json.loads((root / "tests" / "data" / "mcp-server-2025-12-11.schema.json").read_text())
    assert server["$schema"] == schema["$id"]
    jsonschema.Draft7Validator(schema).validate(server)
    (package,) = server["packages"]
    assert {"registryType", "identifier", "version", "transport"} <= package.keys()
    assert (package["registryType"], package["identifier"], package["transport"]) == (
        "pypi",
        "massmem",
        {"type": "stdio"},
    )
    assert server["version"] == package["version"] == massmem.__version__
    for argument in (*package["runtimeArguments"], *package["packageArguments"]):
        needed = {"named": {"name"}, "positional": {"value"}}[argument["type"]]
        assert needed <= argument.keys()
    assert (
        f"mcp-name: {server['name']}" in (root / "README.md").read_text()
    )  # how the registry knows who owns the package
