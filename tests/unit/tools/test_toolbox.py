import pytest

from massmem.config.models import AgentConfig, BackendConfig, McpServerConfig, MemoryConfig
from massmem.core.errors import InputError
from massmem.tools.toolbox import Toolbox, Toolboxes, build_tool_name


def agent(**server: object) -> AgentConfig:
    config = McpServerConfig.model_validate({"name": "s", **server})
    backend = BackendConfig(type="scripted")
    return AgentConfig(id="ann", backend=backend, system_message="", memory=MemoryConfig(), mcp_servers=(config,))


def test_names_are_what_every_provider_takes_and_unique():
    assert build_tool_name("files", "read", {}) == "mcp__files__read"
    assert build_tool_name("my files!", "read/all", {}) == "mcp__my_files___read_all"
    long = [build_tool_name("s" * 60, f"a tool with a long name {n}", {}) for n in range(2)]
    assert len(set(long)) == 2
    assert {len(name) for name in long} == {64}
    taken = {"mcp__a__b_c": 1}
    other = build_tool_name("a", "b/c", taken)
    assert other not in taken
    assert other.startswith("mcp__a__b_c_")


def test_a_program_is_looked_for_on_the_path_of_its_server(tmp_path, monkeypatch):
    program = tmp_path / "my-tools"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    Toolboxes([agent(command="my-tools", env={"PATH": str(tmp_path)})]).check()
    with pytest.raises(InputError, match="'my-tools' of the tool server s is not there"):
        Toolboxes([agent(command="my-tools")]).check()
    monkeypatch.setenv("PATH", str(tmp_path))
    Toolboxes([agent(command="my-tools")]).check()
    Toolboxes([agent(url="http://127.0.0.1:1/mcp")]).check()


async def test_without_servers_there_is_nothing_to_start():
    boxes = Toolboxes([])
    boxes.start()
    await boxes.wait_until_ready()
    assert boxes.get_toolbox("ann").specs == ()
    result = await Toolbox().call("rm -rf", {})
    assert result.failed
    assert result.text == "there is no tool 'rm -rf'; the tools are: none"
    await boxes.close()
