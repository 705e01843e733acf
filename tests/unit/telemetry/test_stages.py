import json
import stat
from pathlib import Path

from massmem.core.events import AgentStarted, TurnCompleted, TurnFailed, TurnInterrupted
from massmem.core.messages import Usage
from massmem.telemetry.stages import Stages, make_memory_payload, make_respond_payload


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_stage_is_a_line_with_names_and_numbers(tmp_path: Path):
    path = tmp_path / "new" / "stages.jsonl"
    stages = Stages(str(path), ("api_key",))
    stages.write("received", "session_x", 3, {"memory": make_memory_payload(4, {"zip", "order_id"}, "zip")})
    stages.write("respond", "session_x", 3, {"memory": make_memory_payload(6, (), None)})
    first, second = lines(path)
    assert first["payload"] == {
        "memory": {"history_count": 4, "params_keys": ["order_id", "zip"], "waiting_for_param": "zip"}
    }
    assert (first["stage"], first["turn"], second["stage"]) == ("received", 3, "respond")
    assert "session_x" not in path.read_text()
    assert first["session"] == second["session"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_configured_keys_are_left_out_and_so_is_what_looks_like_a_secret(tmp_path: Path):
    path = tmp_path / "stages.jsonl"
    payload = {"deep": [{"PIN": "1234", "note": "sk-abcdefghijklmnop1234"}], "pin": 5}
    Stages(str(path), ("pin",)).write("received", "s", 1, payload)
    (line,) = lines(path)
    assert line["payload"] == {"deep": [{"PIN": "[redacted]", "note": "[redacted]"}], "pin": "[redacted]"}


def test_nothing_is_written_unless_it_is_wanted(tmp_path: Path):
    before = set(tmp_path.rglob("*"))
    stages = Stages(None, ())
    stages.write("received", "s", 1, {})
    assert not stages.is_enabled
    assert set(tmp_path.rglob("*")) == before


def test_file_that_cannot_be_written_is_given_up(tmp_path: Path):
    stages = Stages(str(tmp_path), ())  # a folder
    stages.write("received", "s", 1, {})
    assert not stages.is_enabled


def test_how_a_turn_ended():
    usage = Usage(10, 2, cost=0.5)
    counted = {"prompt": 10, "completion": 2, "reported": True, "cost": 0.5}
    done = TurnCompleted(winner="ann", answer="secret words", presented=False, usage=usage, limit="cost")
    assert make_respond_payload(done) == {
        "status": "completed", "winner": "ann", "limit": "cost", "confidence": None, "usage": counted
    }  # fmt: skip
    failed = TurnFailed(message="secret words", exit_code=3, usage=usage)
    assert make_respond_payload(failed) == {"status": "failed", "exit_code": 3, "usage": counted}
    assert make_respond_payload(TurnInterrupted(by="user")) == {"status": "interrupted"}
    assert make_respond_payload(AgentStarted(agent_id="a", round=1, step="vote")) == {"status": "running"}
