"""`massmem skill install`: tells coding agents when to ask the council, and how to reach it."""

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from massmem.cli.streams import write_out
from massmem.config.home import explain_write_error, make_folder, replace_file
from massmem.config.load import find_config
from massmem.core.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Tell coding agents of the council: when to ask it, and how.")
app.callback()(lambda: None)  # without it Typer would drop the name of the only command

_PLACES = {
    "claude": (".claude/skills", ".claude.json", ".claude/skills", ".mcp.json"),
    "codex": (".agents/skills", ".codex/config.toml", ".agents/skills", ".codex/config.toml"),
    "opencode": (".config/opencode/skills", ".config/opencode/opencode.json", ".opencode/skills", "opencode.json"),
    "cursor": (".cursor/skills", ".cursor/mcp.json", ".cursor/skills", ".cursor/mcp.json"),
}
"""Skills and settings of each program: below the home folder, then in a project."""


@app.command("install")
def install_command(
    claude: Annotated[bool, typer.Option("--claude", help="For Claude Code.")] = False,
    codex: Annotated[bool, typer.Option("--codex", help="For Codex.")] = False,
    opencode: Annotated[bool, typer.Option("--opencode", help="For OpenCode.")] = False,
    cursor: Annotated[bool, typer.Option("--cursor", help="For Cursor.")] = False,
    project: Annotated[bool, typer.Option("--project", help="In the working directory, for this project.")] = False,
) -> None:
    """Write a skill and the MCP server into coding agents' settings.

    Into those that are named, else into those on PATH.

    What is there stays, also an entry `massmem` of your own. A second run changes nothing.
    """
    flags = {"claude": claude, "codex": codex, "opencode": opencode, "cursor": cursor}
    names = [name for name in flags if flags[name]] or [name for name in flags if shutil.which(name)]
    if not names:
        raise InputError("no coding agent is on PATH", "name one: massmem skill install --claude")
    base, first = (Path.cwd(), 2) if project else (Path.home(), 0)
    program = "massmem" if project else shutil.which("massmem") or str(Path(sys.argv[0]).absolute())
    skill = find_config("@examples/scripted").with_name("SKILL.md").read_text("utf-8")
    for name in names:
        skills, settings = _PLACES[name][first : first + 2]
        _write(base / skills / "massmem" / "SKILL.md", skill, "the skill")
        _add_server(base / settings, program)


def _add_server(path: Path, program: str) -> None:
    """Add the server to a file of settings, unless it has one of this name. Raise InputError: it cannot be read."""
    entry: dict[str, Any] = {"command": program, "args": ["mcp"]}
    section = "mcpServers"
    if path.name == "config.toml":
        section, entry = "mcp_servers", entry | {"startup_timeout_sec": 30, "tool_timeout_sec": 600}
    elif path.name == "opencode.json":
        section, entry = "mcp", {"type": "local", "command": [program, "mcp"], "enabled": True, "timeout": 600_000}
        path = commented if (commented := path.with_suffix(".jsonc")).exists() else path
    is_table = path.suffix == ".toml"
    added = json.dumps({section: {"massmem": entry}})
    if is_table:
        added = "\n".join([f"[{section}.massmem]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())])
    try:
        text = path.read_text("utf-8") if path.exists() else ""
        settings: Any = tomllib.loads(text) if is_table else json.loads(text or "{}")
        servers = settings.get(section, {})
        if "massmem" in servers:
            write_out(f"{path}: has a server massmem\n")
            return
        new = json.dumps(settings | {section: servers | {"massmem": entry}}, indent=2, ensure_ascii=False) + "\n"
        if is_table:
            tomllib.loads(new := f"{text.rstrip()}\n\n{added}\n".lstrip())
    except (ValueError, AttributeError, TypeError) as e:
        form = path.suffix[1:5].upper()
        raise InputError(f"{path} is no plain {form}, and stays as it is", f"add: {added}") from e
    _write(path, new, added)


def _write(path: Path, text: str, what: str) -> None:
    """Write a file, with the rights that it had, unless it is the same. what: for the user."""
    path = path.resolve()
    if path.exists() and path.read_text("utf-8", "replace") == text:
        write_out(f"{path}: has {what}\n")
        return
    make_folder(path.parent)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    try:
        replace_file(path, text)
        path.chmod(mode)
    except OSError as e:
        raise explain_write_error(path, e) from e
    write_out(f"{path}: wrote {what}\n")
