"""Questions on the command line, with real files and scripted models; processes where only a process will do."""

import asyncio
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from base64 import b64decode
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from massmem.cli.main import main
from massmem.cli.question import MAX_CHARACTERS
from massmem.cli.setup import find_session_config
from massmem.core.events import decode_event, now
from massmem.core.records import SessionRecord
from massmem.store import open_store
from tests.support.cli import call_massmem, massmem, script, start, write_team
from tests.support.forked import ForkedMassmem
from tests.support.json_server import serve_posts
from tests.support.pictures import PNG, encrypt_pdf, make_pdf

SESSION = re.compile(r"session_\d{8}_\d{6}(?:_[0-9a-f]{4})?")


@pytest.fixture
def team(tmp_path: Path) -> str:
    return write_team(tmp_path, script("first"), script("second", present="the final answer"), script("third"))


def session_in(stderr: bytes) -> str:
    match = SESSION.search(stderr.decode())
    assert match, stderr
    return match.group()


@pytest.fixture
def answered_session(team: str, capsys: pytest.CaptureFixture[str]) -> str:
    """A session with one answered question."""
    assert main(["--config", team, "Why is the sky blue?"]) == 0
    return session_in(capsys.readouterr().err.encode())


def test_answer_that_is_written_anew_stands_once_in_a_pipe(tmp_path: Path):
    broken = {"text": "The sky is", "error": "interrupted"}
    team = write_team(tmp_path, script(chunk_size=3) | {"answer": [broken, "It is blue."]})
    for quiet in ([], ["--quiet"]):
        ran = call_massmem("--config", team, *quiet, "Why?")
        assert (ran.returncode, ran.stdout) == (0, b"It is blue.\n"), ran.stderr


def test_answer_with_an_unknown_stop_reason_is_an_answer(tmp_path: Path):
    asked = list[bytes]()

    def respond(body: bytes) -> tuple[int, str, bytes]:
        asked.append(body)
        choice = {"index": 0, "message": {"content": "It is blue."}, "finish_reason": "goblin"}
        return 200, "application/json", json.dumps({"object": "chat.completion", "choices": [choice]}).encode()

    with serve_posts(respond) as url:
        served = {"type": "openai", "model": "m", "base_url": url, "api_key": "test-key-0123"}
        team = tmp_path / "team.json"
        team.write_text(json.dumps({"agents": [{"id": "hal", "backend": served}], "memory": {"enabled": False}}))
        ran = call_massmem("--config", str(team), "Why?")
    assert (ran.returncode, ran.stdout, len(asked)) == (0, b"It is blue.\n", 1), ran.stderr
    assert b"its stop reason is unknown (goblin), and so whether the end of its reply is missing" in ran.stderr


def test_answer_goes_to_stdout_and_progress_to_stderr(tmp_path: Path):
    team = write_team(tmp_path, script("one"), script("two"), script("three"), coordination={"presentation": "as_is"})
    ran = call_massmem("--config", team, "Why?")
    assert ran.returncode == 0
    assert ran.stdout == b"one\n"
    err = ran.stderr.decode()
    assert "round 1 of 3, answers: a, b, c" in err
    assert re.search(r"wins: \d of 3 votes", err)
    last = err.splitlines()[-1]
    session = session_in(ran.stderr)
    assert last == f'{session}: massmem --session-id {session} --config {team} "next question"'


PORT_SCHEMA = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}


def test_answer_fits_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    team = write_team(tmp_path, script("It is 8080.", present='{"port": 8080}'))
    schema = tmp_path / "port.json"
    schema.write_text(json.dumps(PORT_SCHEMA))
    assert main(["--config", team, "--schema", str(schema), "Which port?", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"] == {"port": 8080}
    assert main(["--config", team, "--schema", str(schema), "Which port?", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out) == {"port": 8080}


def test_answer_without_its_form_is_a_text_and_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    team = write_team(tmp_path, script("It is 8080.", present='{"port": "8080"}'))
    schema = tmp_path / "port.json"
    schema.write_text(json.dumps(PORT_SCHEMA))
    assert main(["--config", team, "--schema", str(schema), "Which port?"]) == 1
    out, err = capsys.readouterr()
    assert out == "It is 8080.\n"
    assert "not in the form of the schema" in err and "at port" in err and "the text is shown" in err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "there is no file"),
        ("port: integer", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"type": "objekt"}', "type: 'objekt' is not valid"),
        ('{"$ref": "https://example.org/port.json"}', "https://example.org/port.json"),
    ],
)
def test_schema_that_is_none_is_refused_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, problem: str
):
    schema = tmp_path / "schema.json"
    if text is not None:
        schema.write_text(text)
    assert main(["--config", write_team(tmp_path, script("one")), "--schema", str(schema), "Which port?"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and problem in err and str(schema) in err


def test_session_continues(team: str, answered_session: str):
    ran = call_massmem("--session-id", answered_session, "--config", team, "Second question", "--output", "json")
    result = json.loads(ran.stdout)
    assert (result["session_id"], result["turn"], result["question"]) == (answered_session, 2, "Second question")


def test_quiet_writes_nothing_to_stderr(team: str):
    ran = call_massmem("--config", team, "--quiet", "Why?")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout


def test_jsonl_output(team: str):
    ran = call_massmem("--config", team, "--output", "jsonl", "Why?")
    events = [decode_event(line) for line in ran.stdout.splitlines()]
    assert (events[0].type, events[-1].type) == ("turn_started", "turn_completed")
    assert ran.returncode == 0


def test_json_output_is_one_object(team: str):
    ran = call_massmem("--config", team, "--json", "Why?")
    result = json.loads(ran.stdout)
    assert set(result) >= {
        "schema_version", "status", "session_id", "turn", "question", "answer", "winner", "votes", "rounds", "agents",
        "usage", "seconds", "errors",
    }  # fmt: skip
    assert result["status"] == "completed"
    assert sum(result["votes"].values()) == 3
    assert result["usage"]["requests"] == sum(a["usage"]["requests"] for a in result["agents"]) == 7


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [(["--solo"], "A lion."), (["--solo=b"], "A tiger."), (["--solo", "c"], "A puma.")],
    ids=["the first", "with =", "before the question"],
)
def test_one_agent_of_the_team_is_asked_alone(arguments: list[str], answer: str, tmp_path: Path):
    team = write_team(tmp_path, script("A lion."), script("A tiger."), script("A puma."))
    ran = call_massmem("--config", team, *arguments, "Why?")
    assert (ran.returncode, ran.stdout.decode()) == (0, f"{answer}\n")
    assert b"1 agent" in ran.stderr
    id_ = {"A lion.": "a", "A tiger.": "b", "A puma.": "c"}[answer]
    assert f"--solo={id_}".encode() in ran.stderr, "the next question goes to it as well"


def test_two_that_differ_and_the_option_full_bring_in_the_others(tmp_path: Path):
    team = write_team(tmp_path, script("42"), script("42"), script("7"), coordination={"depth": "adaptive"})
    ran = call_massmem("--config", team, "--output", "plain", "6 * 7?")
    assert (ran.returncode, ran.stdout.decode()) == (0, "42\n")
    assert b"a and b gave the same answer; c was not needed" in ran.stderr and b"2 of 3 agents" in ran.stderr
    ran = call_massmem("--config", team, "--json", "Thank you!")
    result = json.loads(ran.stdout)
    assert (result["depth"], result["not_asked"], result["errors"]) == ("asks_for_text", ["b", "c"], [])
    assert result["usage"]["requests"] == 1
    ran = call_massmem("--config", team, "--full", "Thank you!")
    assert b"3 agents" in ran.stderr and b"--full" in ran.stderr
    ran = call_massmem("--config", team, "--full", "--solo=a", "Why?")
    assert (ran.returncode, b"--full and --solo exclude each other" in ran.stderr) == (2, True)


def test_agent_that_the_team_does_not_have_cannot_be_asked_alone(tmp_path: Path):
    team = write_team(tmp_path, script("A lion."), script("A tiger."))
    ran = call_massmem("--config", team, "--solo=z", "Why?")
    assert (ran.returncode, ran.stderr.decode().splitlines()) == (
        2, ["massmem: there is no agent 'z'", "  agents: a, b"]
    )  # fmt: skip


def test_last_vote_that_could_change_nothing_is_not_asked_for(tmp_path: Path):
    two_rounds = {"max_rounds": 2, "presentation": "as_is"}
    later = (script(text, latency=0.1) for text in ("A tiger.", "A puma."))
    team = write_team(tmp_path, script("A lion."), *later, coordination=two_rounds)
    ran = call_massmem("--config", team, "--json", "Why?")
    result = json.loads(ran.stdout)
    assert (result["winner"], result["decided_by"], result["not_asked"]) == ("a", "early_stop", ["a"])
    assert (result["votes"], result["confidence"], result["usage"]["requests"]) == ({"a": 2}, 1.0, 5)
    plain = call_massmem("--config", team, "--output", "plain", "Why?")
    assert b"a wins: 2 of 2 votes, enough without a vote of a" in plain.stderr
    team = write_team(tmp_path, script("A lion."), script("A tiger."), coordination={**two_rounds, "early_stop": False})
    assert json.loads(call_massmem("--config", team, "--json", "Why?").stdout)["decided_by"] == "consensus"


def test_reader_sees_who_agrees_and_what_the_minority_says(tmp_path: Path):
    for_first = {"vote": {"vote_for": "lion", "reason": "It roars."}}
    for_third = {"vote": {"vote_for": "puma", "reason": "It is quieter."}}
    later = {"A tiger.": for_first, "A puma.": for_first, "A lynx.": for_third}
    scripts = [script("A lion.", **for_third), *(script(text, latency=0.1, **vote) for text, vote in later.items())]
    team = write_team(tmp_path, *scripts, coordination={"presentation": "as_is"})
    by_mode = {mode: call_massmem("--config", team, "--show", mode, "Why?") for mode in ("answer", "dissent", "all")}
    errors = {mode: ran.stderr.decode() for mode, ran in by_mode.items()}
    assert all(ran.stdout == b"A lion.\n" for ran in by_mode.values()), "the answer alone is on stdout"
    summary = "a's answer got 2 of 4 votes (nobody may choose its own)"
    assert f"{summary}; d prefers the answer of c: It is quieter." in errors["answer"]
    minority = "d:\n  A lynx.\n  voted for the answer of c: It is quieter."
    assert summary in errors["dissent"] and minority in errors["dissent"] and "\nb:\n" not in errors["dissent"]
    assert minority in errors["all"] and "\nb:\n  A tiger.\n  voted for the answer of a: It roars." in errors["all"]
    quiet = call_massmem("--config", team, "--show", "all", "--quiet", "Why?")
    assert b"nobody may choose" not in quiet.stderr
    dissent = json.loads(call_massmem("--config", team, "--json", "Why?").stdout)["dissent"]
    assert [position["agent"] for position in dissent["minority"]] == ["d"]


def test_answers_without_a_vote_are_not_compared_and_the_others_are_named(tmp_path: Path):
    team = write_team(tmp_path, script("It is the air."), script("Air does it."), coordination={"max_rounds": 1})
    ran = call_massmem("--config", team, "--output", "plain", "Why?")
    progress = ran.stderr.decode()
    reason = "no vote was held: coordination.max_rounds is 1"
    assert f"a wins: {reason}\n" in progress
    assert "gave or chose" not in progress
    assert f"2 answers, not compared ({reason}); the final answer is written from them\n" in progress
    command = re.search(r"^see every answer with: massmem (.*)$", progress, re.MULTILINE)
    assert command is not None
    shown = call_massmem(*shlex.split(command[1])).stdout.decode()
    assert "It is the air." in shown and "Air does it." in shown and f"2 answers, not compared ({reason})" in shown
    result = json.loads(call_massmem("--config", team, "--json", "Why?").stdout)
    assert result["agreement"].startswith("2 answers, not compared")
    assert [position["agent"] for position in result["dissent"]["uncompared"]] == ["b"]


def test_failed_agent_is_reported_and_fails_with_strict(tmp_path: Path):
    team = write_team(tmp_path, script("fine"), script("fine too"), {"answer": [{"error": "auth"}]})
    ran = call_massmem("--config", team, "--quiet", "Why?")
    assert ran.returncode == 0
    assert b"c failed" in ran.stderr
    strict = call_massmem("--config", team, "--strict", "--json", "Why?")
    assert strict.returncode == 1
    result = json.loads(strict.stdout)
    assert (result["status"], result["errors"][0]["agent"]) == ("completed", "c")
    assert result["agents"][2]["error"]["type"] == "AuthenticationError"


def test_turn_in_which_nobody_could_vote_is_reported_and_fails_with_strict(tmp_path: Path):
    team = write_team(tmp_path, *({"answer": f"answer {i}", "vote": {"error": "refused"}} for i in range(3)))
    ran = call_massmem("--config", team, "Why?")
    assert ran.returncode == 0
    assert b"nobody could vote" in ran.stderr
    strict = call_massmem("--config", team, "--strict", "--json", "Why?")
    result = json.loads(strict.stdout)
    assert (strict.returncode, result["decided_by"], result["confidence"]) == (1, "no_vote", None)
    assert "nobody could vote" in "".join(result["notices"])


@pytest.mark.parametrize(("error", "code"), [("auth", 2), ("unavailable", 3), ("refused", 1)])
def test_failed_turn_can_be_tried_again(error: str, code: int, tmp_path: Path):
    broken = {"answer": [{"error": error}]}
    agents: list[dict[str, Any]] = [{"id": "a", "backend": {"type": "scripted", "max_retries": 0, "script": broken}}]
    path = tmp_path / "broken.yaml"
    path.write_text(json.dumps({"agents": agents}))
    ran = call_massmem("--config", str(path), "--json", "Why?")
    result = json.loads(ran.stdout)
    assert (ran.returncode, result["status"], result["answer"]) == (code, "failed", None)
    assert b"massmem: no agent could answer" in ran.stderr
    assert b"try again with: massmem --session-id" in ran.stderr
    repaired = write_team(tmp_path, script("now it works"))
    again = call_massmem("--session-id", result["session_id"], "--config", repaired)
    assert (again.returncode, again.stdout) == (0, b"now it works\n")


@pytest.mark.parametrize("mode", ["--output=plain", "--output=json", "--output=jsonl", "--quiet"])
def test_time_limit_ends_with_the_answer_so_far_and_says_so_once(mode: str, tmp_path: Path):
    team = write_team(tmp_path, script("quick"), script("slow", latency=60))
    ran = call_massmem("--config", team, "--timeout", "1", mode, "Why?")
    assert ran.returncode == 4
    assert b"quick" in ran.stdout
    assert ran.stderr.count(b"time limit reached") == 1


def test_time_limit_without_an_answer(tmp_path: Path):
    ran = call_massmem("--config", write_team(tmp_path, script(latency=60)), "--timeout", "0.5", "--json", "Why?")
    assert (ran.returncode, json.loads(ran.stdout)["status"]) == (4, "limit")


def test_debug_log_is_private(team: str, tmp_path: Path):
    ran = call_massmem("--config", team, "--debug", "Why?", cwd=tmp_path)
    (log,) = (tmp_path / ".massmem" / "massmem_logs").glob("log_*/massmem.log")
    assert str(log) in ran.stderr.decode()
    assert "turn_completed" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_record_of_a_model_that_needs_no_wire_is_empty_and_says_so(team: str, tmp_path: Path):
    result = massmem("--config", team, "--record", str(tmp_path / "wire.jsonl"), "Why?")
    assert result.returncode == 0
    assert "wire.jsonl is empty: nothing went over the wire" in result.stderr.decode()


def test_dotenv_of_the_working_directory_is_read(tmp_path: Path):
    team = write_team(tmp_path, script("${MASSMEM_TEST_ANSWER}"))
    (tmp_path / ".env").write_text("MASSMEM_TEST_ANSWER=from dotenv\n")
    assert call_massmem("--config", team, "Why?", cwd=tmp_path).stdout == b"from dotenv\n"


def test_question_that_is_a_command_name(team: str):
    result = json.loads(call_massmem("ask", "models", "--config", team, "--json").stdout)
    assert result["question"] == "models"


def test_session_is_listed(team: str, answered_session: str):
    ran = call_massmem("--list-sessions")
    assert f"Session ID: {answered_session}\n  Status:  completed\n".encode() in ran.stdout
    assert f"  Config:  {team}\n".encode() in ran.stdout


# The source of the question


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_piped_question(arguments: tuple[str, ...], team: str):
    result = json.loads(call_massmem("--config", team, "--json", *arguments, stdin=b"Why,\nreally?\n").stdout)
    assert result["question"] == "Why,\nreally?"


def test_text_piped_beside_a_question_is_added_to_it(team: str):
    result = json.loads(call_massmem("--config", team, "--json", "Summarise this:", stdin=b"line 1\nline 2\n").stdout)
    assert result["question"] == "Summarise this:\n\nline 1\nline 2"


def test_pipe_that_stays_open_beside_a_question_is_explained(team: str):
    with start("--config", team, "--json", "Why?", stdin=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stderr
        assert b"reading standard input until it ends" in process.stderr.readline()
        process.stdin.close()
        assert json.loads(process.stdout.read())["question"] == "Why?"


def test_files_are_added_to_the_question(team: str, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("first note\n")
    (tmp_path / "more.md").write_text("second note")
    line = ("--config", team, "--json", "-f", "notes.txt", "--file", "more.md", "Summarise:")
    result = json.loads(call_massmem(*line, stdin=b"piped", cwd=tmp_path).stdout)
    assert result["question"] == (
        "Summarise:\n\npiped\n\n--- notes.txt ---\nfirst note\n\n--- more.md ---\nsecond note"
    )


@pytest.mark.parametrize(
    ("name", "question", "message"),
    [
        ("missing.txt", "Why?", "there is no file missing.txt"),
        (".", "Why?", ". is a folder"),
        ("image.png", "Why?", "image.png does not begin like a .png file"),
        ("notes.txt", None, "there are files, but no question"),
    ],
)
def test_file_that_cannot_be_added_is_refused(name: str, question: str | None, message: str, team: str, tmp_path: Path):
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\xff\xfe")
    (tmp_path / "notes.txt").write_text("a note")
    ran = call_massmem("--config", team, "-f", name, *([question] if question else []), cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert message in ran.stderr.decode()


def test_pictures_and_documents_come_with_the_question(tmp_path: Path):
    team = write_team(tmp_path, script("{seen}"))
    (tmp_path / "plan.png").write_bytes(PNG)
    (tmp_path / "report.pdf").write_bytes(make_pdf("Sales rose."))
    (tmp_path / "scan.pdf").write_bytes(make_pdf(""))
    line = ("--config", team, "--json", "-f", "report.pdf", "-f", "scan.pdf", "-i", "plan.png", "What is it?")
    result = json.loads(call_massmem(*line, cwd=tmp_path).stdout)
    assert result["question"] == (
        "What is it?\n\n--- report.pdf ---\nSales rose.\n\n[attached: scan.pdf]\n[attached: plan.png]"
    )
    assert [part.split(" (")[0] for part in result["answer"].split("), ")] == ["scan.pdf", "plan.png"]
    export = call_massmem("sessions", "export", result["session_id"], "--config", team).stdout
    files = json.loads(export)["turns"][0]["files"]
    assert [(file["name"], b64decode(file["data"])) for file in files][1] == ("plan.png", PNG)
    page = call_massmem("sessions", "export", result["session_id"], "--config", team, "--format", "html").stdout
    assert b'<img alt="plan.png" src="data:image/png;base64,' in page
    call_massmem("sessions", "delete", "--yes", result["session_id"], "--config", team)
    with closing(sqlite3.connect(Path.home() / ".massmem" / "massmem.db")) as database:
        assert database.execute("SELECT count(*) FROM files").fetchone() == (0,)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("plan.png", "-i", "plan.png is no picture that models can see"),
        ("secret.pdf", "-f", "secret.pdf is a PDF encrypted with a password"),
        ("broken.pdf", "-f", "broken.pdf is a damaged PDF"),
        ("large", "-f", "large is larger than 10,000,000 bytes"),
        ("large", "-i", "large is larger than 10,000,000 bytes"),
        ("/dev/zero", "-f", "/dev/zero is a device"),
    ],
)
def test_file_that_is_none_of_its_kind_is_refused(name: str, option: str, message: str, team: str, tmp_path: Path):
    (tmp_path / "plan.png").write_text("no picture")
    (tmp_path / "secret.pdf").write_bytes(encrypt_pdf(make_pdf("x"), "secret"))
    (tmp_path / "broken.pdf").write_bytes(make_pdf("x")[:200])
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10**9)
    ran = call_massmem("--config", team, option, name, "Why?", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert message in ran.stderr.decode()
    assert ran.stderr.count(b"\n") == 2, "one message, and what to do"


def test_picture_for_a_model_without_vision_is_refused_or_described(tmp_path: Path):
    (tmp_path / "plan.png").write_bytes(PNG)
    backends = {"ann": {}, "bob": {"vision": False}}
    agents = [{"id": name, "backend": {"type": "scripted", **backend}} for name, backend in backends.items()]
    (tmp_path / "team.yaml").write_text(json.dumps({"agents": agents, "memory": {"enabled": False}}))
    line = ("--config", "team.yaml", "--output", "json", "-i", "plan.png", "What is it?")
    refused = call_massmem(*line, cwd=tmp_path)
    assert refused.returncode == 2
    assert b"bob (scripted) cannot" in refused.stderr
    described = call_massmem(*line, "--describe", cwd=tmp_path)
    assert described.returncode == 0
    assert "What is attached, as ann describes it:" in json.loads(described.stdout)["question"]


def test_invalid_utf8_is_replaced(team: str):
    ran = call_massmem("--config", team, "--json", stdin=b"Why \xff\xed\xa0\x80 \x00?")
    assert re.fullmatch(r"Why �+ �\?", json.loads(ran.stdout)["question"])
    assert b"cannot be read and are shown as" in ran.stderr


def test_refusal_of_a_program_in_place_of_a_text(team: str):
    ran = call_massmem("--config", team, stdin=bytes(range(256)) * 40)
    assert (ran.returncode, ran.stdout) == (2, b"") and b"standard input is no text" in ran.stderr


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp1252"])
def test_piped_text_has_any_encoding_that_a_file_may_have(team: str, encoding: str):
    ran = call_massmem("--config", team, "--json", stdin="Où est le café à Graz?\n".encode(encoding))
    assert json.loads(ran.stdout)["question"] == "Où est le café à Graz?"
    assert (b"Windows-1252" in ran.stderr) == (encoding == "cp1252")


def test_lone_surrogate_in_an_argument_is_replaced(team: str):
    ran = subprocess.run(
        [sys.executable, "-m", "massmem", "--config", team, "--json", b"Why \xff?"], capture_output=True, check=False
    )
    assert json.loads(ran.stdout)["question"] == "Why �?"


@pytest.mark.parametrize("question", ["", "   ", "\n\t"])
def test_empty_question_is_refused(question: str, team: str, capsys: pytest.CaptureFixture[str]):
    assert main(["--config", team, question]) == 2
    out, err = capsys.readouterr()
    assert (out, "the question is empty" in err) == ("", True)


@pytest.mark.parametrize("stdin", [b"", b" \n"])
def test_no_question_and_an_empty_pipe(stdin: bytes, team: str):
    ran = call_massmem("--config", team, stdin=stdin)
    assert ran.returncode == 2
    assert b'there is no question\n  ask like this: massmem "your question"' in ran.stderr


def test_question_of_ten_megabytes_is_refused(team: str):
    began = time.monotonic()
    ran = call_massmem("--config", team, stdin=b"x" * 10_000_000)
    assert ran.returncode == 2
    assert f"longer than {MAX_CHARACTERS:,} characters" in ran.stderr.decode()
    assert time.monotonic() - began < 20


def test_longest_question_is_answered(team: str):
    result = json.loads(call_massmem("--config", team, "--json", stdin=("é" * MAX_CHARACTERS).encode()).stdout)
    assert (result["status"], len(result["question"])) == ("completed", MAX_CHARACTERS)


# Refused


def test_unknown_session_is_exit_5_and_names_similar_ones(team: str, answered_session: str):
    near = answered_session[:-1] + ("0" if answered_session[-1] != "0" else "1")
    ran = call_massmem("--config", team, "--session-id", near, "--json", "Next?")
    assert ran.returncode == 5
    error = json.loads(ran.stdout)
    assert (error["status"], error["exit_code"]) == ("error", 5)
    assert answered_session in error["fix"]


@pytest.mark.parametrize(
    "bad", ["../../etc/passwd", "a/../b", "a\nb", "a\0b", "x" * 4096, "a․․b", "．．", "", "-x", ".hidden", "\ud800"]
)
def test_invalid_session_id_is_refused_before_anything_is_written(
    bad: str, team: str, home: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["--config", team, f"--session-id={bad}", "Next?"]) == 2
    assert "cannot be a session id" in capsys.readouterr().err
    assert not (home / ".massmem").exists()


def test_session_without_unfinished_turn_needs_a_question(team: str, answered_session: str):
    ran = call_massmem("--config", team, "--session-id", answered_session)
    assert ran.returncode == 2
    assert b"has no unfinished turn" in ran.stderr


def test_missing_configuration_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--config", str(tmp_path / "none.yaml"), "Why?"]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_missing_key_names_the_variable(tmp_path: Path):
    path = tmp_path / "openai.yaml"
    path.write_text("agents: [{id: a, backend: {type: openai, model: gpt-5-mini}}]")
    began = time.monotonic()
    ran = call_massmem("--config", str(path), "Why?")
    assert time.monotonic() - began < 20  # a second on an idle machine; the bench measures it
    assert ran.returncode == 2
    assert b"OPENAI_API_KEY" in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_unwritable_home(team: str):
    ran = call_massmem("--config", team, "Why?", env=os.environ | {"HOME": "/proc"})
    assert (ran.returncode, b"Traceback" in ran.stderr) == (2, False)
    assert b"/proc/.massmem cannot be written" in ran.stderr


def test_home_that_is_a_file(team: str, home: Path, capsys: pytest.CaptureFixture[str]):
    (home / ".massmem").write_text("in the way")
    assert main(["--config", team, "Why?"]) == 2
    assert f"{home / '.massmem'} cannot be written" in capsys.readouterr().err


# Signals


def run_and_signal(team: str, signum: signal.Signals) -> "subprocess.CompletedProcess[bytes]":
    """Run until the first answer is in, then send the signal."""
    err = Path(team).with_name("err")
    process = ForkedMassmem("--config", team, "--output", "jsonl", "Why?", err=err)
    output = b""
    for line in process.stdout:
        output += line
        if b'"answer_submitted"' in line:
            break
    process.send_signal(signum)
    output += b"".join(process.finish())
    assert process.exit_code is not None
    return subprocess.CompletedProcess([], process.exit_code, output, err.read_bytes())


def test_sigquit_asks_for_the_answer_now(tmp_path: Path):
    team = write_team(tmp_path, script("quick"), script("slow", latency=30), script("slower", latency=30))
    ran = run_and_signal(team, signal.SIGQUIT)
    assert (ran.returncode, ran.stderr.decode().count("Traceback")) == (0, 0)
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert "answer_now_requested" in [event["type"] for event in events]
    winner = next(event for event in events if event["type"] == "winner_decided")
    assert (winner["agent_id"], winner["by"], events[-1]["answer"]) == ("a", "answer_now", "quick")


def test_turn_that_is_killed_once_it_is_to_answer_now_keeps_to_that(tmp_path: Path):
    team = write_team(tmp_path, script("late", latency=30), script("slow", latency=30))
    process = ForkedMassmem("--config", team, "--output", "jsonl", "Why?")
    for line in process.stdout:
        if b'"agent_started"' in line:
            process.send_signal(signal.SIGQUIT)
        if b'"answer_now_requested"' in line:
            break
    process.kill()
    faster = write_team(tmp_path, script("late", latency=30), script("soon"))
    again = massmem("--continue", "--config", faster, "--json")
    result = json.loads(again.stdout)
    assert (result["answer"], result["decided_by"], result["rounds"]) == ("soon", "answer_now", 1)


@pytest.mark.parametrize(("signum", "code", "by"), [(signal.SIGINT, 130, "user"), (signal.SIGTERM, 143, "signal")])
def test_signal_stops_the_turn_and_the_next_run_finishes_it(signum: signal.Signals, code: int, by: str, tmp_path: Path):
    team = write_team(tmp_path, script("quick"), script("slow", latency=30))
    ran = run_and_signal(team, signum)
    assert ran.returncode == code
    last = json.loads(ran.stdout.splitlines()[-1])
    assert (last["type"], last["by"]) == ("turn_interrupted", by)
    assert "Traceback" not in ran.stderr.decode()
    session = session_in(ran.stderr)
    assert f"finish this turn with: massmem --session-id {session}" in ran.stderr.decode()
    faster = write_team(tmp_path, script("quick"), script("slow", latency=0))
    again = massmem("--session-id", session, "--config", faster, "--json")
    result = json.loads(again.stdout)
    assert (again.returncode, result["status"], result["turn"], result["question"]) == (0, "completed", 1, "Why?")
    assert [answer["content"] for answer in result["agents"][0]["answers"]] == ["quick"], "and is not requested again"


def test_killed_turn_is_interrupted_in_every_list_and_finished_before_the_next_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    team = write_team(tmp_path, script("quick"), script("slow", latency=30))
    session = json.loads(run_and_signal(team, signal.SIGKILL).stdout.splitlines()[0])["session_id"]
    assert main(["--list-sessions", "--json"]) == 0
    assert [row["status"] for row in json.loads(capsys.readouterr().out)] == ["interrupted"]
    assert main(["sessions", "list", "--config", team, "--json"]) == 0
    assert [row["status"] for row in json.loads(capsys.readouterr().out)["sessions"]] == ["interrupted"]
    assert main(["sessions", "show", "--config", team, session]) == 0
    assert "the turn is interrupted" in capsys.readouterr().out
    for status, sessions in (("interrupted", [session]), ("active", [])):
        assert main(["sessions", "list", "--config", team, "--status", status, "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert ([row["session_id"] for row in listed["sessions"]], listed["total"]) == (sessions, len(sessions))
    faster = write_team(tmp_path, script("quick"), script("slow"))
    assert main(["--session-id", session, "--config", faster, "Next?"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert "answer to the earlier question 'Why?':" in err


@pytest.mark.parametrize(
    "options", [["--continue"], ["--session-id", "Trip to Lisbon"], ["--session-id", "ID"]], ids=str
)
def test_every_way_to_go_on_takes_the_configuration_that_the_session_began_with(
    answered_session: str, team: str, options: list[str]
):
    assert call_massmem("sessions", "rename", answered_session, "Trip to Lisbon").returncode == 0
    ran = call_massmem(*(answered_session if word == "ID" else word for word in options), "--json", "Next?")
    assert (json.loads(ran.stdout)["turn"], ran.returncode) == (2, 0)
    assert f"using {team}, with which the session began" in ran.stderr.decode()


def test_fork_goes_on_by_itself(answered_session: str):
    forked = call_massmem("sessions", "fork", answered_session, "--turn", "1")
    fork = forked.stdout.decode().strip()
    assert fork != answered_session, forked.stderr
    assert f'massmem --session-id {fork} "your question"' in forked.stderr.decode()
    assert json.loads(call_massmem("--session-id", fork, "--json", "Next?").stdout)["turn"] == 2
    listed = json.loads(call_massmem("sessions", "list", "--json").stdout)["sessions"]
    assert {row["session_id"]: row["turns"] for row in listed} == {fork: 2, answered_session: 1}
    assert fork in call_massmem("--list-sessions").stdout.decode()
    refused = call_massmem("sessions", "fork", answered_session, "--turn", "7")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert f"{answered_session} has no turn 7" in refused.stderr.decode()


def test_fork_from_an_event_is_finished_by_itself(answered_session: str):
    listed = call_massmem("sessions", "show", answered_session, "--turn", "1", "--events", "--json")
    events = {event["type"]: event for event in json.loads(listed.stdout)}
    number = str(events["answer_submitted"]["seq"])
    shown = call_massmem("sessions", "show", answered_session, "--turn", "1", "--events").stdout.decode()
    assert re.search(rf"^{number} +answer_submitted +1 ", shown, re.MULTILINE)
    forked = call_massmem("sessions", "fork", answered_session, "--event", number)
    fork = forked.stdout.decode().strip()
    assert f"finish its turn: massmem --session-id {fork}\n" in forked.stderr.decode()
    finished = call_massmem("--session-id", fork, "--json")
    assert json.loads(finished.stdout)["turn"] == 1
    for arguments, message in (
        (("fork", answered_session, "--event", "99999"), "has no event 99999"),
        (("fork", answered_session, "--event", "1", "--turn", "1"), "two ends"),
        (("show", answered_session, "--events"), "--turn N"),
    ):
        refused = call_massmem("sessions", *arguments)
        assert (refused.returncode, refused.stdout) == (2, b"")
        assert message in refused.stderr.decode()


def test_configuration_is_found_from_another_folder(tmp_path: Path):
    write_team(tmp_path, script("Lisbon."))
    session = json.loads(call_massmem("--config", "team.yaml", "--json", "Where?", cwd=tmp_path).stdout)["session_id"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ran = call_massmem("--session-id", session, "Where?", cwd=elsewhere)
    assert ran.stdout == b"Lisbon.\n", ran.stderr


async def test_owner_of_a_session_is_named_to_go_on_with_it(tmp_path: Path, home: Path):
    team = write_team(tmp_path, script("Lisbon."))
    store = await open_store(f"sqlite:///{home / '.massmem' / 'massmem.db'}", home / ".massmem")
    await store.create_session(
        SessionRecord(session_id="alices", user_id="alice", config_path=team, created_at=now(), updated_at=now())
    )
    await store.close()
    for options, code in ((["--session-id", "alices"], 5), (["--continue"], 5), (["--owner", "alice"], 2)):
        assert (await asyncio.to_thread(massmem, "--config", team, *options, "Where?")).returncode == code
    for options in (["--session-id", "alices"], ["--continue"]):
        ran = await asyncio.to_thread(massmem, "--owner", "alice", *options, "--json", "Where?")
        assert json.loads(ran.stdout)["session_id"] == "alices", ran.stderr
    listed = await asyncio.to_thread(massmem, "--list-sessions", "--json")
    assert json.loads(listed.stdout) == []


def test_configuration_that_is_gone_is_reported(answered_session: str, team: str, capsys: pytest.CaptureFixture[str]):
    Path(team).unlink()
    assert find_session_config(answered_session) is None
    assert "is not there; the default configuration is used" in capsys.readouterr().err


def test_closed_pipe_stops_the_turn_quietly(tmp_path: Path):
    team = write_team(tmp_path, script("quick"), script("slow", latency=1))
    err = tmp_path / "err"
    process = ForkedMassmem("--config", team, "--output", "jsonl", "Why?", err=err)
    process.stdout.readline()
    process.stdout.close()
    process.join(20)
    assert process.exit_code == 141
    assert err.read_bytes() == b""
