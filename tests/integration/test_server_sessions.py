"""`/api/v1/sessions` at a real service: conversations and their turns as the page shows them."""

import io
import json
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
import yaml

from massmem.core.records import Owner
from massmem.session.imports import hold_import
from massmem.session.owners import to_stored_id
from tests.support.pictures import PNG
from tests.support.service import Client, Service, StartService, make_agent, make_config, read_events, wait_until

SESSIONS = "/api/v1/sessions"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests: each has users of its own."""
    config = make_config(make_agent("ann", "It is blue."), make_agent("ben", "It is blue."))
    service = Service(tmp_path_factory.mktemp("service"), config).start()
    yield service
    assert service.stop() == 0


@pytest.fixture
def user() -> str:
    return f"alice-{uuid4()}"


@pytest.fixture
def alice(service: Service, user: str) -> Client:
    return service.client(user)


@pytest.fixture
def bob(service: Service) -> Client:
    return service.client(f"bob-{uuid4()}")


def list_titles(client: Client, query: str = "") -> list[str]:
    return [session["title"] for session in client.get(f"{SESSIONS}?{query}").json()["sessions"]]


def read_part(client: Client, session_id: str, query: str = "") -> dict[str, Any]:
    return client.get(f"{SESSIONS}/{session_id}?{query}").json()


def test_about_names_the_user_and_the_teams(alice: Client, user: str) -> None:
    about = alice.get("/api/v1/about").json()
    assert about["user"] == user
    assert [[agent["id"] for agent in team["agents"]] for team in about["teams"]] == [["ann", "ben"]]


def test_list_is_paged_and_filtered(alice: Client) -> None:
    for number in range(3):
        assert alice.chat(f"Question {number}?", f"s{number}").status_code == 200
    assert list_titles(alice) == ["Question 2?", "Question 1?", "Question 0?"]
    assert list_titles(alice, "limit=1&offset=1") == ["Question 1?"]
    assert list_titles(alice, "text=question+0") == ["Question 0?"]
    assert alice.get(f"{SESSIONS}?limit=1").json()["total"] == 3


def test_session_alone_is_described_as_in_the_list(alice: Client) -> None:
    alice.chat("Why?", "s")
    listed = alice.get(SESSIONS).json()["sessions"][0]
    assert listed["confidence"] == 1.0
    alone = read_part(alice, "s")["session"]
    assert alone == {**alone, **listed}
    renamed = alice.post(f"{SESSIONS}/s/rename", {"title": "Colours"}).json()
    assert renamed == {**alone, "title": "Colours"}


def test_messages_come_in_parts_with_their_turns(alice: Client) -> None:
    for number in range(3):
        alice.chat(f"Question {number}?", "s")
    newest = read_part(alice, "s", "limit=2")
    assert [message["text"] for message in newest["messages"]] == ["Question 2?", "It is blue."]
    assert [turn["turn"] for turn in newest["turns"]] == [3]
    assert newest["has_older"]
    assert newest["follow_after"] is None
    older = read_part(alice, "s", f"limit=4&before={newest['messages'][0]['seq']}")
    assert [message["turn"] for message in older["messages"]] == [1, 1, 2, 2]
    assert not older["has_older"]


def test_long_text_is_cut_and_read_whole_by_its_number(alice: Client) -> None:
    text = "a long question " * 5_000
    alice.chat(text, "s")
    message = read_part(alice, "s")["messages"][0]
    assert (len(message["text"]), message["length"]) == (50_000, len(text))
    assert alice.get(f"{SESSIONS}/s/messages/{message['seq']}").text == text
    assert alice.get(f"{SESSIONS}/s/messages/999").status_code == 404


def as_data(text: str) -> str:
    return f"data:text/plain;base64,{b64encode(text.encode()).decode()}"


def test_texts_of_files_stand_below_the_question(alice: Client) -> None:
    log = "12:00 the worker started\n" * 5_000
    files = [{"type": "file", "file": {"filename": "server.log", "file_data": as_data(log)}}]
    asked = alice.post(
        "/api/v1/chat", {"message": [{"type": "text", "text": "What is wrong?"}, *files], "session_id": "s"}
    )
    assert asked.status_code == 200
    message = read_part(alice, "s")["messages"][0]
    assert (message["text"], message["length"]) == ("What is wrong?", 14)
    assert message["texts"] == [{"name": "server.log", "length": len(log) - 1}]
    texts = [alice.get(f"{SESSIONS}/s/messages/{message['seq']}?part={part}") for part in (0, 1, 2)]
    assert [(answer.status_code, len(answer.text)) for answer in texts[:2]] == [(200, 14), (200, len(log) - 1)]
    assert texts[2].status_code == 404
    (hit,) = [hit for hit in alice.get("/api/v1/search?query=worker").json()["hits"] if hit["role"] == "user"]
    assert (hit["title"], hit["excerpt"][:36]) == ("What is wrong?", "server.log: 12:00 the worker started")


def test_file_is_checked_by_the_rule_for_questions(alice: Client) -> None:
    def check(name: str, data: bytes) -> tuple[int, str]:
        answer = alice.post_bytes(f"/api/v1/files/check?name={name}", data)
        return answer.status_code, answer.json().get("kind") or answer.json()["error"]

    assert check("a.txt", b"Hello") == (200, "text")
    assert check("dot.png", PNG) == (200, "seen")
    assert check("dot.png", PNG[:-20]) == (
        422, "dot.png is cut off: the end of the picture is missing; copy or download it again",
    )  # fmt: skip
    status, problem = check("a.bin", b"\xff\x00\x01")
    assert (status, problem.partition(";")[0]) == (422, "a.bin is no text")
    assert check("a.txt", b"x" * 10_000_001) == (422, "a.txt is larger than 10,000,000 bytes")


def test_another_team_is_said_before_it_is_asked(start_service: StartService, tmp_path: Path) -> None:
    (tmp_path / "support.yaml").write_text(yaml.safe_dump({"agents": [make_agent("sue", "Restart it.")]}))
    default = make_agent("ann", "It is blue.")
    teams = {"teams": {"support": str(tmp_path / "support.yaml")}}
    first = start_service(make_config(default, server=teams))
    alice = first.client("alice")
    alice.post("/api/v1/chat", {"message": "It is broken.", "session_id": "s", "team": "support"})
    alice.chat("Why is the sky blue?", "t")
    part = read_part(alice, "s")
    assert (part["team"]["name"], part["team"]["agents"][0]["id"], part["note"]) == ("support", "sue", "")
    assert alice.chat("Still broken.", "s").json()["agent_id"] == "sue"
    first.stop()
    alice = start_service(make_config(default)).client("alice")
    assert read_part(alice, "t")["note"] == ""
    note = (
        "Another team answers from here on: ann (so far: sue). The team that answered so far is not offered any more."
    )
    assert read_part(alice, "s")["note"] == note
    assert alice.chat("And now?", "s").json()["agent_id"] == "ann"
    assert read_part(alice, "s")["note"] == ""


def test_conversation_keeps_the_team_that_was_chosen_last(start_service: StartService, tmp_path: Path) -> None:
    (tmp_path / "support.yaml").write_text(yaml.safe_dump({"agents": [make_agent("ann", "Restart it.")]}))
    teams = {"teams": {"support": str(tmp_path / "support.yaml")}}
    alice = start_service(make_config(make_agent("ann", "It is blue."), server=teams)).client("alice")
    alice.chat("Why?", "s")
    asked = alice.post("/api/v1/chat", {"message": "It is broken.", "session_id": "s", "team": "support"})
    assert asked.json()["response"] == "Restart it."
    assert read_part(alice, "s")["team"]["name"] == "support"
    assert alice.chat("Still.", "s").json()["response"] == "Restart it."
    alice.chat("Why?", "t")
    figures = alice.get("/api/v1/figures").json()
    (day,) = figures["days"]
    assert {name: (figures["agents"][name]["team"], day["agents"][name]["turns"]) for name in figures["agents"]} == {
        "ann": ("default team", 1), "ann 2": ("support", 3),
    }  # fmt: skip


def test_turn_has_its_events_without_what_is_internal(alice: Client) -> None:
    alice.chat("Why?", "s")
    details = alice.get(f"{SESSIONS}/s/turns/1").json()
    kinds = [event["type"] for event in details["events"]]
    assert kinds[0] == "turn_started"
    assert kinds[-1] == "turn_completed"
    assert "agent_delta" not in kinds
    assert details["events"][0]["session_id"] == "s"
    assert alice.get(f"{SESSIONS}/s/turns/2").status_code == 404


def test_session_is_renamed_and_forked(alice: Client, bob: Client) -> None:
    alice.chat("Why?", "s")
    alice.chat("How?", "s")
    assert alice.post(f"{SESSIONS}/s/rename", {"title": "Colours"}).json()["title"] == "Colours"
    fork = alice.post(f"{SESSIONS}/s/fork", {"turn": 1}).json()
    assert fork["title"] == "Colours (fork)"
    assert alice.post(f"{SESSIONS}/s/rename", {"title": fork["title"]}).status_code == 422
    assert [text for role, text in alice.read_history(fork["session_id"]) if role == "user"] == ["Why?"]
    assert bob.get(f"{SESSIONS}/{fork['session_id']}").status_code == 404
    assert alice.post(f"{SESSIONS}/s/fork", {"turn": 7}).status_code == 422
    for path, body in (
        ("fork", {"before": 1}),
        ("rename", {"title": "A", "name": "B"}),
        ("version", {"turn": 1, "x": 1}),
    ):
        refused = alice.post(f"{SESSIONS}/s/{path}", body)
        assert (refused.status_code, [*body][-1] in refused.json()["error"]) == (422, True)
    refused = alice.post("/api/v1/chat", {"message": "Why?", "sesion_id": "s"})
    assert (refused.status_code, "sesion_id" in refused.json()["error"]) == (422, True)


def test_turn_that_is_asked_again_has_versions(alice: Client, bob: Client) -> None:
    for question in ("Why?", "How?"):
        alice.chat(question, "s")

    def list_questions() -> list[str]:
        return [text for role, text in alice.read_history("s") if role == "user"]

    again = {"message": "When?", "session_id": "s", "replaces": 1}
    assert alice.post("/api/v1/chat", again).json()["turn"] == 3
    assert list_questions() == ["When?"]
    assert [(turn["turn"], turn["versions"]) for turn in read_part(alice, "s")["turns"]] == [(3, [1, 3])]
    assert alice.post(f"{SESSIONS}/s/version", {"turn": 1}).status_code == 204
    assert list_questions() == ["Why?", "How?"]
    assert alice.get(f"{SESSIONS}/s/turns/1").json()["turn"]["versions"] == [1, 3]
    assert alice.list_sessions() == ["s"]
    refused = alice.post("/api/v1/chat", again | {"replaces": 3})
    assert (refused.status_code, "not part of the conversation" in refused.json()["error"]) == (422, True)
    assert alice.post(f"{SESSIONS}/s/version", {"turn": 4}).status_code == 422
    assert bob.post(f"{SESSIONS}/s/version", {"turn": 1}).status_code == 404


def test_fork_from_an_event_continues_there(alice: Client) -> None:
    body = {"message": "Why?", "session_id": "s"}
    numbers = {name: number for name, number, _ in read_events(alice.post("/api/v1/chat/stream", body, stream=True))}
    fork = alice.post(f"{SESSIONS}/s/fork", {"event": numbers["answer_submitted"]}).json()["session_id"]
    assert read_part(alice, fork)["turns"][0]["winner"] is None
    assert alice.post(f"/api/v1/chat/{fork}/continue", {}).status_code == 204
    wait_until(lambda: read_part(alice, fork)["turns"][0]["status"] == "completed")
    assert alice.post(f"{SESSIONS}/s/fork", {"event": 99_999}).status_code == 422


@pytest.mark.parametrize("form", ["json", "markdown", "text", "html"])
def test_export_has_the_conversation_and_nothing_of_the_service(alice: Client, form: str) -> None:
    alice.chat("Why?", "s")
    exported = alice.get(f"{SESSIONS}/s/export?format={form}")
    assert "It is blue" in exported.text
    assert exported.headers["Content-Disposition"].startswith('attachment; filename="s.')
    assert ".yaml" not in exported.text
    if form == "json":
        assert json.loads(exported.text)["session"]["session_id"] == "s"


def test_search_finds_messages_of_the_user_alone(alice: Client, bob: Client) -> None:
    alice.chat("What is a quokka?", "s")
    bob.chat("Where do quokkas, the quokka kind, live?", "s")
    hits = alice.get("/api/v1/search?query=quokka").json()["hits"]
    assert [(hit["session_id"], hit["turn"], hit["excerpt"]) for hit in hits] == [("s", 1, "What is a quokka?")]


def test_sessions_of_others_do_not_exist(alice: Client, bob: Client) -> None:
    alice.chat("Why?", "s")
    for path in ("", "/turns/1", "/messages/1", "/export", f"/files/{'0' * 64}"):
        assert bob.get(f"{SESSIONS}/s{path}").status_code == 404
    assert bob.post(f"{SESSIONS}/s/rename", {"title": "Mine"}).status_code == 404
    assert bob.post(f"{SESSIONS}/s/fork", {}).status_code == 404
    assert bob.post("/api/v1/chat/s/continue", {}).status_code == 404


def test_stopped_turn_is_continued(start_service: StartService) -> None:
    service = start_service(make_config(make_agent("ann", "It is blue.", latency=60)))
    alice = service.client("alice")
    stream = alice.post("/api/v1/chat/stream", {"message": "Why?", "session_id": "s"}, stream=True)
    wait_until(lambda: read_part(alice, "s").get("follow_after") == 0)
    assert alice.post("/api/v1/chat/s/stop", {}).status_code == 204
    stream.close()
    wait_until(lambda: read_part(alice, "s")["turns"][0]["status"] == "interrupted")
    assert alice.post("/api/v1/chat/s/continue", {}).status_code == 204
    assert read_part(alice, "s")["follow_after"] == 0
    assert alice.post("/api/v1/chat/s/stop", {}).status_code == 204
    assert alice.post("/api/v1/chat/t/continue", {}).status_code == 404


EXPORT = [
    {"uuid": "u1", "name": "Pump", "chat_messages": [
        {"sender": "human", "text": "Where is the pump?"}, {"sender": "assistant", "text": "In the cellar."},
    ]},
    {"session": {"session_id": "mine"}, "turns": [{"question": "Why?", "answer": "Because."}]},
]  # fmt: skip
IMPORT = f"{SESSIONS}/import"


def list_outcomes(client: Client, export: object) -> list[tuple[str, int, bool]]:
    """Import an export; return the id of each session, the turns that were added, and whether there was a conflict."""
    response = client.post(IMPORT, export)
    assert response.status_code == 200, response.text
    return [(one["session_id"], one["added"], one["conflict"]) for one in response.json()["sessions"]]


def test_export_is_imported_once_and_goes_on(alice: Client) -> None:
    (pump, added, _), whole = list_outcomes(alice, EXPORT)
    assert (added, whole) == (1, ("mine", 1, False))
    assert list_outcomes(alice, EXPORT) == [(pump, 0, False), ("mine", 0, False)]
    assert alice.read_history(pump) == [("user", "Where is the pump?"), ("assistant", "In the cellar.")]
    assert sorted(alice.list_sessions()) == sorted(["mine", pump])
    wait_until(lambda: "In the cellar." in alice.get("/api/v1/memories?agent=claude").text)
    assert alice.chat("And the valve?", pump).json()["turn"] == 2
    longer = json.loads(json.dumps(EXPORT))
    longer[0]["chat_messages"] += [{"sender": "human", "text": "Thanks"}, {"sender": "assistant", "text": "Bye"}]
    assert list_outcomes(alice, longer) == [(pump, 0, True), ("mine", 0, False)]


def test_file_that_is_being_imported_is_refused_before_it_is_read(start_service: StartService) -> None:
    service = start_service(make_config(make_agent("ann", "It is blue.")))
    alice = service.client("alice")
    with hold_import(service.home / ".massmem", b"alice no export"):
        response = alice.post_bytes(IMPORT, b"no export")
        assert (response.status_code, "writes this file already" in response.text) == (429, True), response.text
    response = alice.post_bytes(IMPORT, b"no export")
    assert (response.status_code, "writes this file already" in response.text) != (429, True), response.text


def test_archive_is_imported_and_an_edited_turn_replaced(alice: Client) -> None:
    older = [{**EXPORT[0], "chat_messages": [*EXPORT[0]["chat_messages"], {"sender": "human", "text": "And?"}]}, None]
    edited = [{**EXPORT[0], "chat_messages": [EXPORT[0]["chat_messages"][0], {"sender": "assistant", "text": "Here."}]}]
    outcomes: list[Any] = []
    for export in (older, edited):
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            archive.writestr("conversations.json", json.dumps(export))
        headers = {"Authorization": f"Bearer {alice.token}", "Content-Type": "application/zip"}
        response = requests.post(alice.url + IMPORT, written.getvalue(), headers=headers, timeout=60)
        assert response.status_code == 200, response.text
        outcomes.append(response.json())
    assert outcomes[0]["left_out"] == {"question without an answer": 1, "entry that is no conversation (no object)": 1}
    (session,) = outcomes[1]["sessions"]
    assert (session["added"], session["replaced"], outcomes[1]["left_out"]) == (1, 1, {})
    assert alice.read_history(session["session_id"]) == [("user", "Where is the pump?"), ("assistant", "Here.")]


def test_imports_of_others_are_apart(alice: Client, bob: Client, user: str) -> None:
    alice.chat("A secret", "mine")
    list_outcomes(bob, EXPORT)
    assert alice.read_history("mine")[0] == ("user", "A secret")
    assert bob.read_history("mine") == [("user", "Why?"), ("assistant", "Because.")]
    foreign = {"session": {"session_id": to_stored_id(Owner(user), "mine")}, "turns": EXPORT[1]["turns"]}
    assert list_outcomes(bob, foreign) == [("mine", 0, False)], "a stored id of alice is a name like any other"
    assert len(alice.read_history("mine")) == 2
    assert alice.list_sessions() == ["mine"]


def test_import_of_a_session_that_is_being_asked(start_service: StartService) -> None:
    alice = start_service(make_config(make_agent("ann", "It is blue.", latency=60))).client("alice")
    alice.post("/api/v1/chat/stream", {"message": "Why?", "session_id": "mine"}, stream=True)
    wait_until(lambda: read_part(alice, "mine").get("follow_after") == 0)
    outcome = alice.post(IMPORT, EXPORT[1]).json()["sessions"][0]
    assert (outcome["busy"], outcome["added"]) == (True, 0)
    alice.post("/api/v1/chat/mine/stop", {})


@pytest.mark.parametrize("body", [b"", b"[]", b"PK\x03\xff", b"[" * 100_000, b"9" * 5_000, b'{"turns": 5}'])
def test_body_that_is_no_export_is_refused(alice: Client, service: Service, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {alice.token}", "Content-Type": "application/json"}
    response = requests.post(service.url + IMPORT, body, headers=headers, timeout=60)
    assert response.status_code == 422
    assert response.json()["error"].startswith("the file")


def test_import_holds_to_the_limits(start_service: StartService) -> None:
    service = start_service(make_config(server={"limits": {"body": 1_000}}))
    assert service.client("alice").post(IMPORT, EXPORT * 100).status_code == 413
    assert requests.post(service.url + IMPORT, json=EXPORT, timeout=60).status_code == 401
