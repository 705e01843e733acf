from massmem.config import models, reference
from massmem.config.key_table import docstrings


def test_every_field_has_a_meaning() -> None:
    described = docstrings()
    for section in models.Section.__subclasses__():
        if section is not models.AgentConfig:
            for name in section.model_fields:
                assert described[section.__name__, name]


def test_the_table() -> None:
    text = reference()
    assert text == reference()
    lines = text.splitlines()
    assert lines[0] == "| key | type | default | meaning |"
    assert all(line.replace(r"\|", "").count("|") == 5 for line in lines)
    assert "| `agents[]` | list of sections | required | The council; `agent:` for one. |" in lines
    assert any(line.startswith("| `server.port` | whole number, >= 0, <= 65535 | `4000` |") for line in lines)
    assert any(line.startswith("| `agents[].mcp_servers[].env` | mapping to secret |  |") for line in lines)
    assert "`source`" not in text
