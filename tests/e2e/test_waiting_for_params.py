"""Agents that need a value from the user, through the command line: asking, answering, giving up, being killed."""

import json
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from massmem.cli.main import main
from massmem.core.events import Event, ParamRequested, decode_event
from tests.support.cli import massmem, script, start, write_team

pytestmark = pytest.mark.slow

SECRET = "O-98765"
PARAMS = {
    "order_id": {
        "description": "The number of the order",
        "pattern": r"O-\d{5}",
        "examples": ["O-12345"],
        "mapping": ["order number"],
    },
    "zip": {"pattern": r"\d{5}"},
}
ASKS = {"ask": "order_id", "ask_prompt": "What is your order number?", "text": "Order {order_id} is on its way."}
SESSION = re.compile(r"session_\d{8}_\d{6}(?:_[0-9a-f]{4})?")
NEVER = {"error": "auth"}

Ran = tuple[int, str, str]


def team(folder: Path, *scripts: dict[str, Any], **sections: Any) -> str:
    defaults = {"params": PARAMS, "memory": {"persistent_memory": {"enabled": False}}}
    return write_team(folder, *scripts, **{**defaults, **sections})


def asker(**more: Any) -> dict[str, Any]:
    """It asks for the order, and any reading of a reply by a model would fail."""
    return {"answer": ASKS, "vote": ["A"], "extract": NEVER, **more}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """The program in this process: starting one takes a second."""

    def called(*arguments: str) -> Ran:
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return called


def waiting_session(run: Callable[..., Ran], config: str, *options: str) -> str:
    code, _, err = run("--config", config, *options, "Where is my order?")
    assert code == 6, err
    found = SESSION.search(err)
    assert found
    return found.group()


def read_log(home: Path) -> list[Event]:
    with closing(sqlite3.connect(home / ".massmem" / "massmem.db")) as db:
        return [decode_event(row[0]) for row in db.execute("SELECT payload FROM events ORDER BY seq")]


def state(home: Path) -> tuple[dict[str, Any], str | None]:
    with closing(sqlite3.connect(home / ".massmem" / "massmem.db")) as db:
        found = db.execute("SELECT params_json, waiting_for_param FROM session_state").fetchone()
        return (json.loads(found[0]), found[1]) if found else ({}, None)


def kinds(events: Sequence[Event]) -> list[str]:
    return [e.type for e in events if e.type not in ("agent_delta", "context_measured")]


def test_the_prompt_is_on_stdout_and_the_reply_goes_on_with_the_turn(
    tmp_path: Path, home: Path, run: Callable[..., Ran]
):
    config = team(tmp_path, asker(vote={"vote_for": "Order"}), script("b's answer", vote={"vote_for": "Order"}))
    code, out, err = run("--config", config, "Where is my order?")
    assert (code, out) == (6, "What is your order number?\n")
    assert "a needs order_id from you" in err
    session = SESSION.search(err)
    assert session
    assert f'answer with: massmem --session-id {session.group()} --config {config} "your answer"' in err
    assert state(home) == ({}, "order_id")
    code, out, err = run("--session-id", session.group(), "--config", config, f"It's {SECRET}.")
    assert (code, out) == (0, f"Order {SECRET} is on its way.\n")
    assert "order_id received" in err and "round 1 of 3, answers: a\n" in err
    assert state(home) == ({"order_id": SECRET}, None)
    answers = [e.agent_id for e in read_log(home) if e.type == "answer_submitted"]  # pyright: ignore[reportAttributeAccessIssue]
    assert answers == ["b", "a"], "b's answer is not asked for again"


def test_known_value_is_not_asked_for_in_later_turns(tmp_path: Path, run: Callable[..., Ran]):
    config = team(tmp_path, asker())
    session = waiting_session(run, config)
    assert run("--session-id", session, "--config", config, SECRET)[0] == 0
    code, out, _ = run("--session-id", session, "--config", config, "And now?")
    assert (code, out) == (0, f"Order {SECRET} is on its way.\n")


def test_json_and_jsonl_name_what_is_waited_for(tmp_path: Path, run: Callable[..., Ran]):
    config = team(tmp_path, asker())
    code, out, _ = run("--config", config, "--json", "Where is it?")
    found = json.loads(out)
    assert (code, found["status"], found["answer"]) == (6, "waiting", None)
    waiting_for = {"param": "order_id", "prompt": "What is your order number?", "asked": 1, "agents": ["a"]}
    assert found["waiting_for"] == waiting_for
    code, out, _ = run("--session-id", found["session_id"], "--config", config, "--output", "jsonl", "hm, isn't it?")
    assert code == 2, "the model that should read it fails"
    code, out, _ = run("--session-id", found["session_id"], "--config", config, "--output", "jsonl", SECRET)
    events = [json.loads(line) for line in out.splitlines()]
    assert [e["type"] for e in events[:3]] == ["turn_resumed", "user_replied", "param_provided"]
    assert (events[1]["param"], events[1]["text"]) == ("order_id", "")
    assert (code, events[-1]["type"]) == (0, "turn_completed")


def test_it_is_asked_again_and_then_given_up(tmp_path: Path, home: Path, run: Callable[..., Ran]):
    no = {"text": '{"intent": "answer", "provided": false, "value": ""}'}
    asks = {**ASKS, "text": "I cannot tell without it."}
    config = team(tmp_path, asker(answer=asks, extract=no))
    session = waiting_session(run, config)
    prompts: list[str] = []
    for _ in range(2):
        code, out, _ = run("--session-id", session, "--config", config, "I don't know.")
        assert code == 6
        prompts.append(out)
    assert prompts[0].startswith("I could not read that. I need the number of the order.")
    assert "For example: O-12345." in prompts[1]
    code, out, err = run("--session-id", session, "--config", config, "I don't know.")
    assert (code, out) == (0, "I cannot tell without it.\n")
    assert "order_id not received; the agents go on without it" in err
    assert state(home) == ({}, None)


@pytest.mark.parametrize("word", ["cancel", "reset"])
def test_the_user_may_give_the_question_up(word: str, tmp_path: Path, home: Path, run: Callable[..., Ran]):
    config = team(tmp_path, asker(answer=[{**ASKS, "ask": "zip"}]), asker())
    session = waiting_session(run, config)
    assert run("--session-id", session, "--config", config, "12345")[:2] == (6, "What is your order number?\n")
    code, out, err = run("--session-id", session, "--config", config, word)
    assert (code, out) == (0, "")
    assert ("Cancelled." if word == "cancel" else "Started over:") in err
    assert state(home) == ({"zip": "12345"} if word == "cancel" else {}, None)
    ran = massmem("--session-id", session, "--config", config)
    assert (ran.returncode, b"no unfinished turn" in ran.stderr) == (2, True)


def test_another_question_gives_the_first_one_up(tmp_path: Path, home: Path, run: Callable[..., Ran]):
    change = {"text": '{"intent": "change", "provided": false, "value": ""}'}
    config = team(tmp_path, asker(extract=change))
    session = waiting_session(run, config)
    code, out, err = run("--session-id", session, "--config", config, "--json", "What is the weather like?")
    found = json.loads(out)
    assert (code, found["turn"], found["question"]) == (6, 2, "What is the weather like?")
    assert "has no answer. Replaced by your new question." in err
    questions = [e.question for e in read_log(home) if e.type == "turn_started"]  # pyright: ignore[reportAttributeAccessIssue]
    assert questions == ["Where is my order?", "What is the weather like?"]
    assert [e for e in read_log(home) if e.type == "user_replied"] == []


def test_after_its_time_the_message_is_a_question(tmp_path: Path, run: Callable[..., Ran]):
    config = team(tmp_path, asker(), coordination={"waiting_timeout": 0.001})
    session = waiting_session(run, config)
    code, out, err = run("--session-id", session, "--config", config, "--json", SECRET)
    assert (code, json.loads(out)["turn"]) == (6, 2)
    assert "no reply in time" in err
    assert massmem("--session-id", session, "--config", config).returncode == 4


def test_two_agents_ask_one_after_the_other(tmp_path: Path, run: Callable[..., Ran]):
    other = asker(answer={"ask": "zip", "ask_prompt": "Your zip code?", "text": "To {zip}."})
    config = team(tmp_path, asker(), other, coordination={"presentation": "as_is"})
    session = waiting_session(run, config)
    code, out, err = run("--session-id", session, "--config", config, SECRET)
    assert (code, out) == (6, "Your zip code?\n")
    assert "round" not in err, "no model is asked in between"
    code, out, _ = run("--session-id", session, "--config", config, "12345")
    assert (code, out in (f"Order {SECRET} is on its way.\n", "To 12345.\n")) == (0, True)


def test_without_a_message_the_user_is_asked_once_more(tmp_path: Path, home: Path, run: Callable[..., Ran]):
    config = team(tmp_path, asker(answer=[ASKS]))
    session = waiting_session(run, config)
    for arguments in ((), ("Where is my order?",)):
        ran = massmem("--session-id", session, "--config", config, *arguments)
        assert (ran.returncode, ran.stdout) == (6, b"What is your order number?\n")
    with closing(sqlite3.connect(home / ".massmem" / "massmem.db")) as db:
        said = db.execute("SELECT content FROM chat_messages WHERE final").fetchall()
    assert said == [("What is your order number?",)], "once in the conversation"


def test_sessions_show_says_what_is_waited_for(tmp_path: Path, run: Callable[..., Ran]):
    config = team(tmp_path, asker(), script("b's answer"))
    session = waiting_session(run, config)
    code, out, _ = run("sessions", "show", session, "--config", config)
    assert code == 0
    for line in ("What is your order number?", "the turn is waiting", "waiting for order_id", "round 1, done: b"):
        assert line in out, out


def reading(*arguments: str, cwd: Path) -> "subprocess.Popen[bytes]":
    """A process in which a slow model is reading a reply."""
    process = start(*arguments, "--debug", "well, isn't it the one of May?", cwd=cwd)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"debug log")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    return process


def test_ctrl_c_while_a_model_reads_the_reply_changes_nothing(tmp_path: Path, home: Path, run: Callable[..., Ran]):
    slow = {"text": "{}", "delay": 30}
    config = team(tmp_path, asker(extract=slow))
    session = waiting_session(run, config)
    process = reading("--session-id", session, "--config", config, cwd=tmp_path)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert kinds(read_log(home))[-1] == "turn_interrupted"
    assert state(home) == ({}, "order_id")
    assert run("--session-id", session, "--config", config, SECRET)[0] == 0


def test_killed_while_a_model_reads_the_reply(tmp_path: Path, home: Path, run: Callable[..., Ran]):
    config = team(tmp_path, asker(extract={"text": "{}", "delay": 30}))
    session = waiting_session(run, config)
    before = kinds(read_log(home))
    process = reading("--session-id", session, "--config", config, cwd=tmp_path)
    process.kill()
    process.communicate()
    assert kinds(read_log(home)) == before
    ran = massmem("--session-id", session, "--config", config)
    assert (ran.returncode, ran.stdout) == (6, b"What is your order number?\n")
    assert run("--session-id", session, "--config", config, SECRET)[0] == 0


def killed_after(config: str, kind: str, *arguments: str) -> None:
    """Run until an event of this kind is out, then SIGKILL."""
    process = start("--config", config, "--output", "jsonl", *arguments)
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["type"] == kind:
            break
    process.kill()
    process.communicate()


def test_killed_between_the_request_and_the_prompt(tmp_path: Path, home: Path, run: Callable[..., Ran]):
    config = team(tmp_path, asker(), script("late", latency=30))
    killed_after(config, "param_requested", "Where is my order?")
    quick = team(tmp_path, asker(answer=[ASKS]), script("b's answer"))
    session = SESSION.search((home / ".massmem" / "sessions.json").read_text())
    assert session
    ran = massmem("--session-id", session.group(), "--config", quick)
    assert (ran.returncode, ran.stdout) == (6, b"What is your order number?\n")
    assert b"round 1 of 3, answers: b\n" in ran.stderr
    assert len([e for e in read_log(home) if isinstance(e, ParamRequested)]) == 1
    assert run("--session-id", session.group(), "--config", quick, SECRET)[0] == 0


def test_killed_right_after_the_value_came_in(tmp_path: Path, home: Path, run: Callable[..., Ran]):
    config = team(tmp_path, asker())
    session = waiting_session(run, config)
    config = team(tmp_path, asker(answer={**ASKS, "delay": 30}))
    killed_after(config, "param_provided", "--session-id", session, SECRET)
    assert state(home) == ({"order_id": SECRET}, None)
    quick = team(tmp_path, asker())
    ran = massmem("--session-id", session, "--config", quick)
    assert (ran.returncode, ran.stdout.decode()) == (0, f"Order {SECRET} is on its way.\n")


def files_with(folder: Path, text: str) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path.relative_to(folder)) for path in files if text.encode() in path.read_bytes()]


def test_no_value_is_anywhere_but_in_the_store(tmp_path: Path, home: Path):
    """The agents never repeat it: then nobody but the store and the requests to the models has it."""
    quiet = {**ASKS, "text": "It is on its way."}
    extract = {"provider": "scripted"}
    memory = {"persistent_memory": {"llm": extract, "session_name": None}}
    config = team(tmp_path, asker(answer=quiet), asker(answer="fine, isn't it"), memory=memory)
    work = tmp_path / "work"
    work.mkdir()
    first = massmem("--config", config, "--debug", "--output", "jsonl", "Where is my order?", cwd=work)
    assert first.returncode == 6, first.stderr
    session = json.loads(first.stdout.splitlines()[0])["session_id"]
    second = massmem("--session-id", session, "--config", config, "--debug", "--output", "jsonl", SECRET, cwd=work)
    assert second.returncode == 0, second.stderr
    third = massmem("--session-id", session, "--config", config, "--debug", "--json", "Thanks. And else?", cwd=work)
    assert third.returncode == 0, third.stderr
    for ran in (first, second, third):
        assert SECRET.encode() not in ran.stdout + ran.stderr
    assert files_with(work, SECRET) == []
    assert {Path(name).name.partition("-")[0] for name in files_with(home, SECRET)} <= {"massmem.db"}
    assert files_with(home, SECRET), "it is in the store"
    assert any("param_provided" in path.read_text() for path in work.rglob("massmem.log"))


def test_values_that_agents_repeat_are_in_no_log_and_no_memory(tmp_path: Path, home: Path):
    memory = {"persistent_memory": {"session_name": None}}
    config = team(tmp_path, asker(), asker(answer=ASKS), memory=memory)
    work = tmp_path / "work"
    work.mkdir()
    first = massmem("--config", config, "--debug", "--json", "Where is my order?", cwd=work)
    session = json.loads(first.stdout)["session_id"]
    second = massmem("--session-id", session, "--config", config, "--debug", f"It is {SECRET}", cwd=work)
    assert second.stdout == f"Order {SECRET} is on its way.\n".encode(), second.stderr
    found = massmem("memory", "search", "order on its way", "--all", "--config", config, cwd=work)
    assert b"[order_id] is on its way" in found.stdout, found.stderr
    assert files_with(work, SECRET) == []
    assert {Path(name).name.partition("-")[0] for name in files_with(home, SECRET)} <= {"massmem.db", "sessions.json"}
