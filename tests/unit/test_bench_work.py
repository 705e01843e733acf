"""The bench of work with tools: its worker knows only its prompt, and its model refuses what a real one refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.benches.work import Job, do
from scripts.benches.work_files import write_files
from scripts.benches.worker import Model, act, find_limits

LISTING = "[FILE] mail-queue.md\n[FILE] mail-reader.md"
FOUND = "The retry limit of module ruby-lynx is 47."
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": f"mcp__files__{name}", "parameters": {"properties": {"path": {}}}}}
    for name in ("list_directory", "read_file")
]


def call(number: int, name: str, path: str, result: str, text: str = "") -> list[dict[str, Any]]:
    function = {"name": f"mcp__files__{name}", "arguments": json.dumps({"path": path})}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": text, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


def ask(*messages: dict[str, Any], model: str = "silent", tools: Any = TOOLS) -> dict[str, Any]:
    question = {"role": "user", "content": "Read every file and tell me the retry limits."}
    return {"model": model, "messages": [question, *messages], "tools": tools}


def note(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def paths(body: dict[str, Any]) -> list[str]:
    return [values["path"] for _, values in act(body).calls]


def test_the_worker_lists_then_reads_then_answers_with_what_it_sees():
    listed = call(1, "list_directory", "docs", LISTING)
    first = call(2, "read_file", "docs/mail-queue.md", FOUND)
    assert paths(ask()) == ["docs"]
    assert paths(ask(*listed)) == ["docs/mail-queue.md"]
    reply = act(ask(*listed, *first, model="notes"))
    assert find_limits(reply.text) == {"ruby-lynx": 47}
    assert reply.calls[0][1]["path"] == "docs/mail-reader.md"
    second = call(3, "read_file", "docs/mail-reader.md", "The retry limit of module jade-otter is 5.")
    end = act(ask(*listed, *first, *second))
    assert not end.calls
    assert find_limits(end.text) == {"ruby-lynx": 47, "jade-otter": 5}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (LISTING, "docs/mail-queue.md"),
        ("In the folder are mail-queue.md and mail-reader.md.", "docs/mail-queue.md"),
        (f"I know that. {FOUND}", "docs/mail-queue.md"),
        ("read_file docs/mail-queue.md (12)", "docs/mail-reader.md"),
        ("Read so far:\n- docs/mail-queue.md\nAnd then?", "docs/mail-reader.md"),
        ("Read: mail-reader.md; not read yet: mail-queue.md", "docs/mail-queue.md"),
        (f"docs/mail-queue.md: {FOUND.lower()}", "docs/mail-reader.md"),
    ],
)
def test_a_file_was_read_only_where_the_prompt_tells_of_it(text: str, path: str):
    assert paths(ask(note(text), *call(9, "list_directory", "docs", LISTING))) == [path]


def test_a_call_that_failed_is_made_again():
    failed = call(2, "read_file", "docs/mail-queue.md", "massmem was stopped while this call ran: it is not known")
    assert paths(ask(*call(1, "list_directory", "docs", LISTING), *failed)) == ["docs/mail-queue.md"]


def test_a_missing_finding_is_looked_for_in_the_parts_of_an_earlier_result():
    properties = {"message": {"type": "integer"}, "part": {"type": "integer"}}
    earlier = {"type": "function", "function": {"name": "read_earlier", "parameters": {"properties": properties}}}
    cut = call(1, "read_file", "docs/mail-queue.md", "Beginning\n[84 KB left out; read_earlier(12, 2)]\nend")
    body = ask(*cut, model="back", tools=[*TOOLS, earlier])
    assert act(body).calls == [("read_earlier", {"message": 12, "part": 2})]
    assert paths(body | {"model": "silent"}) == ["docs"]


def test_a_vote_is_for_the_answer_with_most_findings():
    choice = {"reason": {"type": "string"}, "choice": {"enum": ["A", "B"]}}
    vote = {"type": "function", "function": {"name": "vote", "parameters": {"properties": choice}}}
    answers = f'<answer label="A">\nNothing.\n</answer>\n<answer label="B">\n{FOUND}\n</answer>'
    (name, values), *more = act(ask(note(answers), tools=[vote, *TOOLS])).calls
    assert (name, values["choice"], more) == ("vote", "B", [])


def test_the_model_refuses_a_prompt_above_its_window_with_numbers_and_counts_what_it_was_sent(tmp_path: Path):
    model = Model(500, tmp_path / "log", 0)
    head, _, body = model.respond(ask(note("word " * 600))).partition(b"\r\n\r\n")
    assert (head[9:12], json.loads(body)["error"]["code"]) == (b"400", "context_length_exceeded")
    assert "maximum context length is 500 tokens" in json.loads(body)["error"]["message"]
    reply = model.respond(ask()).decode()
    usage = json.loads(reply.split("data: ")[-2])["usage"]
    seen = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert reply.startswith("HTTP/1.1 200 ")
    assert [entry["refused"] for entry in seen] == [True, False]
    assert usage["prompt_tokens"] == seen[1]["prompt"] < 200 < 600 < seen[0]["prompt"]


def test_each_file_has_one_limit_and_its_name_says_nothing_of_the_module(tmp_path: Path):
    limits = write_files(tmp_path, 60, (2_000, 6_000))
    texts = {path.stem: path.read_text() for path in (tmp_path / "docs").iterdir()}
    assert len(limits) == len(texts) == 60
    assert {name: limit for text in texts.values() for name, limit in find_limits(text).items()} == limits
    assert all(2_000 <= len(text) < 7_000 for text in texts.values())
    assert not texts.keys() & limits.keys()


# The job itself, with fewer files


def test_a_job_that_overflows_its_window_ends_and_nothing_is_done_twice():
    done = do(Job(8_192, ("silent-poor",), files=10))
    assert (done.files, done.repeats, done.code, done.cut) == (10, 0, 0, ""), done.note
    assert done.findings >= 9, done.note
    assert done.compressions > 0


def test_results_that_are_larger_than_the_window_are_read_in_parts():
    done = do(Job(16_384, ("notes-back",), files=2, size=(100_000, 100_000)))
    assert (done.files, done.repeats, done.findings, done.code) == (2, 0, 2, 0), done.note


def test_a_killed_job_goes_on_where_it_was():
    done = do(Job(8_192, ("notes",), files=16, kills=2, delay=0.05))
    assert (done.files, done.repeats, done.findings, done.code) == (16, 0, 16, 0), done.note
    assert (done.kills, done.summaries_again) == (2, 0)


def test_work_that_a_limit_cuts_short_is_answered_with_what_there_is_and_exit_code_4():
    done = do(Job(16_384, ("notes",), files=8, coordination={"max_tool_rounds": 5}))
    assert (done.files, done.findings, done.cut, done.code) == (4, 4, "tool_rounds", 4), done.note
