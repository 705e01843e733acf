"""How often answers like this one were right, and "not sure": a calibrated team on every front end."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from massmem.config.calibrations import read_calibration
from massmem.config.load import load_config
from massmem.config.models import CoordinationConfig
from massmem.core.events import Event, Notice, TurnCompleted, TurnResumed, TurnStarted, WinnerDecided
from massmem.core.records import COMMAND_LINE_USER
from massmem.core.verdict import Calibration
from massmem.export import FORMATS
from massmem.session.session import Session
from massmem.session.team import Team
from massmem.turn.coordinator import Turn
from tests.integration.test_mcp_server import open_http
from tests.support.calibrations import write_calibration
from tests.support.cli import call_massmem, script, write_team
from tests.support.service import Service, StartService, make_agent, make_config
from tests.support.turns import agents_of, collect_turn, only

SPLIT = ("a", "b")
COUNTS = {SPLIT: (150, 107), ("a", "b", "c"): (100, 99)}
MEASURED = {"right": 107, "asked": 150, "low": 0.6364, "high": 0.7797, "group": "number"}
SENTENCE = "answers of this team with such agreement were right 71 % of the time (150 questions, 64-78)"
CANDIDATES = [{"answer": "42", "agents": ["a", "b"]}, {"answer": "40", "agents": ["c"]}]
UNSURE = "Not sure. The agents' answers:\n\n- 42 (a, b)\n- 40 (c)"


def write_split_team(folder: Path, **coordination: Any) -> Path:
    """Two agents say 42, the third says 40."""
    scripts = (script("Six times seven.\nAnswer: 42"), script("42"), script("40"))
    return Path(write_team(folder, *scripts, coordination={"max_rounds": 1, **coordination}))


def ask(team: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the JSON and what stood on stderr."""
    answer = call_massmem("--config", str(team), "--output", "json", *options, "6 * 7?")
    return answer.returncode, json.loads(answer.stdout), answer.stderr.decode()


def test_an_answer_that_is_not_sure_enough_is_unsure_with_its_candidates(home: Path, tmp_path: Path) -> None:
    team = write_split_team(tmp_path, max_error=0.1)
    write_calibration(home, team, COUNTS)
    code, answer, _ = ask(team)
    fields = ("answer", "verdict", "escalated", "measured_confidence", "candidates", "notices")
    assert (code, [answer[field] for field in fields]) == (0, [UNSURE, "unsure", True, MEASURED, CANDIDATES, []])
    assert ask(team, "--strict")[0] == 1
    shown = call_massmem("--config", str(team), "6 * 7?")
    assert shown.stdout.decode().strip() == UNSURE
    assert f"2 of 3 agents gave or chose this answer; {SENTENCE}; c answered: 40" in shown.stderr.decode()
    assert "agreement 67%, not sure" in shown.stderr.decode()
    listed = call_massmem("sessions", "list").stdout.decode()
    assert "67%!" in listed


def test_every_view_of_a_stored_answer_says_how_often_such_answers_were_right(home: Path, tmp_path: Path) -> None:
    team = write_split_team(tmp_path, max_error=0.1)
    write_calibration(home, team, COUNTS)
    session_id = ask(team)[1]["session_id"]
    shown = call_massmem("sessions", "show", session_id).stdout.decode()
    assert all(text in shown for text in ("Not sure.", "- 40 (c)", SENTENCE))
    for form in set(FORMATS) - {"json"}:
        exported = call_massmem("sessions", "export", session_id, "--format", form).stdout.decode()
        assert all(text in exported for text in ("Not sure.", "- 40 (c)", SENTENCE)), form
    exported = call_massmem("sessions", "export", session_id, "--format", "json").stdout
    (turn,) = json.loads(exported)["turns"]
    fields = ("verdict", "measured_confidence", "candidates", "winner")
    assert [turn[field] for field in fields] == ["unsure", MEASURED, CANDIDATES, "a"]
    assert [position["agent"] for position in turn["dissent"]["minority"]] == ["c"]


def test_little_data_and_another_team_say_nothing(home: Path, tmp_path: Path) -> None:
    team = write_split_team(tmp_path)
    file = write_calibration(home, team, {SPLIT: (29, 20)})
    assert ask(team)[1]["measured_confidence"] is None
    write_calibration(home, team, {SPLIT: (30, 20)})
    assert ask(team)[1]["measured_confidence"]["asked"] == 30
    other = write_split_team(tmp_path, majority_wins=False)
    assert ask(other)[1]["measured_confidence"] is None
    file.write_text("[]")
    _, answer, _ = ask(write_split_team(tmp_path))
    assert (answer["measured_confidence"], answer["answer"]) == (None, "Six times seven.\nAnswer: 42")
    assert [str(file) in notice and "write it anew" in notice for notice in answer["notices"]] == [True]


def test_without_a_calibration_the_bound_is_of_the_agreement_and_is_said_once(home: Path, tmp_path: Path) -> None:
    for bound, verdict in ((0.3, "unsure"), (0.4, "answered")):
        team = write_split_team(tmp_path, max_error=bound, weights="measured")
        _, answer, _ = ask(team)
        assert answer["verdict"] == verdict
        (notice,) = answer["notices"]
        assert notice.startswith("coordination.max_error and coordination.weights: this team has no calibration.")
        assert f"massmem eval DATA --config {team} --calibrate" in notice
    team = write_split_team(tmp_path, escalate_below=0.7)
    assert [ask(team)[1][field] for field in ("answer", "notices")] == [UNSURE, []]


def test_long_answers_are_shown_whole_and_in_excerpts_with_their_sources(home: Path, tmp_path: Path) -> None:
    cited = {
        "text": "Air scatters blue light most [1].\n\n" + "It is so. " * 40,
        "searches": ["sky"],
        "citations": [{"url": "https://a.example", "title": "A"}],
    }
    other = {"text": "It mirrors the sea [1]. " * 40, "citations": [{"url": "https://b.example", "title": "B"}]}
    scripts = [
        {"answer": [cited], "vote": [{"vote_for": "Air scatters", "reason": "r"}]},
        {"answer": [other], "vote": [{"vote_for": "It mirrors", "reason": "r"}]},
    ]
    team = Path(write_team(tmp_path, *scripts, coordination={"escalate_below": 0.9}))
    _, answer, _ = ask(team)
    text, (source,) = answer["answer"], answer["citations"]
    assert text.startswith("Not sure. This is the answer of a:\n\nAir scatters blue light most [1].")
    assert text.count("[1]") == 1
    assert "Other answers:\n\n- It mirrors the sea. It mirrors" in text
    assert text.endswith("… (b)")
    assert source["url"] == "https://a.example"
    assert text[source["start"] : source["end"]] == "Air scatters blue light most"
    assert answer["usage"]["requests"] == 4  # nobody writes it down


def test_with_a_schema_the_data_stay_as_they_are(home: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}))
    scripts = [script("42", present='{"n": 42}'), script("42", present='{"n": 42}'), script("40")]
    team = Path(write_team(tmp_path, *scripts, coordination={"max_rounds": 1, "max_error": 0.1}))
    write_calibration(home, team, COUNTS)
    _, answer, _ = ask(team, "--schema", str(schema))
    assert [answer[field] for field in ("data", "verdict", "candidates")] == [{"n": 42}, "unsure", CANDIDATES]


async def test_a_new_calibration_counts_from_the_next_turn_on(home: Path, tmp_path: Path) -> None:
    file = write_split_team(tmp_path, max_error=0.1)
    team = await Team.open(load_config(str(file))[0], home=home / ".massmem", records=False)
    await team.start()
    try:
        measured: list[int | None] = []
        notices: list[int] = []
        for asked in (None, None, 150, 40):
            if asked is not None:
                write_calibration(home, file, {SPLIT: (asked, 30)})
            session = await Session.find(team, owner=COMMAND_LINE_USER)
            events = [event async for event in session.ask("6 * 7?")]
            await session.close()
            end = events[-1]
            assert isinstance(end, TurnCompleted)
            measured.append(end.measured_confidence and end.measured_confidence.asked)
            notices.append(sum(isinstance(event, Notice) for event in events))
        assert (measured, notices) == ([None, None, 150, 40], [1, 0, 0, 0])
    finally:
        await team.close()


def test_an_unsure_answer_is_remembered_as_not_chosen(home: Path, tmp_path: Path) -> None:
    memory = {"persistent_memory": {"session_name": None, "embedding": {"provider": "none"}}}
    texts = ["The bridge was opened in March of 1932.", "The bridge was opened in May of 1937."]
    votes = [{"vote": [{"vote_for": text, "reason": "r"}]} for text in texts]
    scripts = [script(text, **vote) for text, vote in zip(texts, votes, strict=True)]
    team = write_team(tmp_path, *scripts, memory=memory, coordination={"escalate_below": 0.9})
    assert call_massmem("--config", team, "When was the bridge opened?").returncode == 0
    for agent, own, other in (("a", "March", "May"), ("b", "May", "March")):
        command = ("memory", "search", "When was the bridge opened?", "--agent", agent, "--config", team)
        shown = call_massmem(*command).stdout.decode()
        assert "(not chosen) The bridge was opened in" in shown
        assert own in shown
        assert other not in shown


async def play(logged: Sequence[Event] = (), calibration: Calibration | None = None, **settings: Any) -> list[Event]:
    """Run a turn in which a and b say 40 and c says 42, or the rest of it."""
    numbers = {"a": "40", "b": "40", "c": "42"}
    scripts = {agent: {"answer": number, "vote": {"vote_for": number}} for agent, number in numbers.items()}
    if logged:
        logged = [*logged, TurnResumed(session_id="session_x", turn=1, question="why?", agents=tuple(scripts))]
    turn = Turn("session_x", 1, "why?", 7, logged, calibration=calibration)
    return await collect_turn(turn, await agents_of(scripts), CoordinationConfig(max_rounds=1, **settings))


async def test_voices_weigh_what_the_log_says_also_after_a_kill(home: Path, tmp_path: Path) -> None:
    team = write_split_team(tmp_path)
    members = {"a": 40, "b": 60, "c": 90}
    calibration = read_calibration(write_calibration(home, team, COUNTS, members))
    equal = await play(calibration=calibration)
    weighed = await play(calibration=calibration, weights="measured")
    assert [only(events, WinnerDecided)[0].agent_id for events in (equal, weighed)] == ["a", "c"]
    assert only(weighed, TurnStarted)[0].weights.keys() == members.keys()
    assert only(weighed, WinnerDecided)[0].by == "majority"
    for cut in range(1, len(weighed) - 1):
        again = await play(weighed[:cut], weights="measured")  # its calibration is gone
        (winner,) = only([*weighed[:cut], *again], WinnerDecided)
        assert winner.agent_id == "c", f"cut after {cut} events"


async def test_a_verdict_is_the_same_after_a_kill(home: Path, tmp_path: Path) -> None:
    team = write_split_team(tmp_path)
    calibration = read_calibration(write_calibration(home, team, COUNTS))
    for depth in ("full", "adaptive"):
        whole = await play(calibration=calibration, max_error=0.1, depth=depth)
        end = whole[-1]
        assert isinstance(end, TurnCompleted)
        assert end.verdict == "unsure"
        assert end.measured_confidence is not None
        for cut in range(1, len(whole) - 1):
            again = (await play(whole[:cut], calibration, max_error=0.1, depth=depth))[-1]
            assert again.model_copy(update={"at": end.at, "usage": end.usage}) == end, (
                f"{depth}, cut after {cut} events"
            )


@pytest.fixture
def service(tmp_path: Path, start_service: StartService) -> Service:
    agents = (make_agent("a", "42"), make_agent("b", "42"), make_agent("c", "40"))
    service = start_service(make_config(*agents, coordination={"max_rounds": 1, "max_error": 0.1}))
    write_calibration(service.home, service.config_file, COUNTS)  # a service notices it when a turn begins
    return service


def test_http_and_v1_say_what_is_known(service: Service) -> None:
    ann = service.client("ann")
    answer = ann.chat("6 * 7?", "one").json()
    fields = ("response", "verdict", "escalated", "measured_confidence", "candidates")
    assert [answer[field] for field in fields] == [UNSURE, "unsure", True, MEASURED, CANDIDATES]
    _, message = ann.get("/api/v1/chat/history/one").json()["messages"]
    assert [message["result"][field] for field in ("answer", *fields[1:])] == [
        UNSURE,
        "unsure",
        True,
        MEASURED,
        CANDIDATES,
    ]
    asked = {"model": "massmem", "messages": [{"role": "user", "content": "6 * 7?"}]}
    completion = ann.post("/v1/chat/completions", asked).json()
    assert completion["metadata"]["verdict"] == "unsure"
    assert json.loads(completion["metadata"]["measured_confidence"]) == MEASURED
    streamed = ann.post("/v1/chat/completions", asked | {"stream": True}).text
    metadata = {**completion["metadata"], "winner": "a or b"}  # of two that say the same, the quicker one
    [last] = [json.loads(line[6:])["metadata"] for line in streamed.splitlines() if '"metadata"' in line]
    assert {**last, "winner": "a or b"} == metadata
    response = ann.post("/v1/responses", {"model": "massmem", "input": "6 * 7?"}).json()
    assert {**response["metadata"], "winner": "a or b"}.items() >= metadata.items()


async def test_the_mcp_tool_says_how_sure_its_answer_is(service: Service) -> None:
    async with open_http(service, "ann") as client:
        result = await client.call_tool("ask_council", {"question": "6 * 7?"})
    answer = result.structured_content
    assert answer is not None
    fields = ("answer", "verdict", "measured_confidence", "candidates")
    assert [answer[field] for field in fields] == [UNSURE, "unsure", MEASURED, CANDIDATES]
