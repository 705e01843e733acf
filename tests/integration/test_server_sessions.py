"""`/api/v1/sessions` at a real service: conversations and their turns as the page shows them."""

import json
from typing import Any

import pytest

from tests.support.service import Client, Service, StartService, make_agent, make_config, wait_until

SESSIONS = "/api/v1/sessions"


@pytest.fixture
def service(start_service: StartService) -> Service:
    return start_service(make_config(make_agent("ann", "It is blue."), make_agent("ben", "It is blue.")))


@pytest.fixture
def alice(service: Service) -> Client:
    return service.client("alice")


def list_titles(client: Client, query: str = "") -> list[str]:
    return [session["title"] for session in client.get(f"{SESSIONS}?{query}").json()["sessions"]]


def read_part(client: Client, session_id: str, query: str = "") -> dict[str, Any]:
    return client.get(f"{SESSIONS}/{session_id}?{query}").json()


def test_about_names_the_user_and_the_teams(alice: Client) -> None:
    about = alice.get("/api/v1/about").json()
    assert about["user"] == "alice"
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
    assert read_part(alice, "s")["session"] == listed
    renamed = alice.post(f"{SESSIONS}/s/rename", {"title": "Colours"}).json()
    assert renamed == {**listed, "title": "Colours"}
    assert alice.post(f"{SESSIONS}/s/fork", {}).json()["confidence"] == 1.0


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


def test_turn_has_its_events_without_what_is_internal(alice: Client) -> None:
    alice.chat("Why?", "s")
    details = alice.get(f"{SESSIONS}/s/turns/1").json()
    kinds = [event["type"] for event in details["events"]]
    assert kinds[0] == "turn_started"
    assert kinds[-1] == "turn_completed"
    assert "agent_delta" not in kinds
    assert details["events"][0]["session_id"] == "s"
    assert alice.get(f"{SESSIONS}/s/turns/2").status_code == 404


def test_session_is_renamed_to_a_name_that_is_free(alice: Client, service: Service) -> None:
    alice.chat("Why?", "s")
    alice.chat("How?", "t")
    bob = service.client("bob")
    bob.chat("Why?", "s")
    assert alice.post(f"{SESSIONS}/s/rename", {"title": "Colours"}).json()["title"] == "Colours"
    assert alice.post(f"{SESSIONS}/t/rename", {"title": "Colours"}).status_code == 422
    assert bob.post(f"{SESSIONS}/s/rename", {"title": "Colours"}).status_code == 200


def test_fork_belongs_to_its_user_and_goes_its_own_way(alice: Client, service: Service) -> None:
    alice.chat("Why?", "s")
    alice.chat("How?", "s")
    fork = alice.post(f"{SESSIONS}/s/fork", {"turn": 1}).json()
    assert fork["title"] == "Why? (fork)"
    alice.chat("And then?", fork["session_id"])
    assert [text for role, text in alice.read_history(fork["session_id"]) if role == "user"] == ["Why?", "And then?"]
    assert [text for role, text in alice.read_history("s") if role == "user"] == ["Why?", "How?"]
    assert service.client("bob").get(f"{SESSIONS}/{fork['session_id']}").status_code == 404
    assert alice.post(f"{SESSIONS}/s/fork", {"turn": 7}).status_code == 422


def test_fork_before_a_turn_has_what_was_said_before_it(alice: Client, service: Service) -> None:
    for question in ("Why?", "How?"):
        alice.chat(question, "s")
    fork = alice.post(f"{SESSIONS}/s/fork", {"before": 2}).json()["session_id"]
    alice.chat("When?", fork)
    assert [text for role, text in alice.read_history(fork) if role == "user"] == ["Why?", "When?"]
    first = alice.post(f"{SESSIONS}/s/fork", {"before": 1}).json()["session_id"]
    assert first not in alice.list_sessions(), "nothing has been said in it"
    alice.chat("Who?", first)
    assert [text for role, text in alice.read_history(first) if role == "user"] == ["Who?"]
    assert alice.get(f"{SESSIONS}/{first}").json()["session"]["title"] == "Who?"
    assert alice.post(f"{SESSIONS}/s/fork", {"before": 3}).status_code == 422
    assert service.client("bob").post(f"{SESSIONS}/s/fork", {"before": 1}).status_code == 404


@pytest.mark.parametrize("form", ["json", "markdown", "text", "html"])
def test_export_has_the_conversation_and_nothing_of_the_service(alice: Client, form: str) -> None:
    alice.chat("Why?", "s")
    exported = alice.get(f"{SESSIONS}/s/export?format={form}")
    assert "It is blue" in exported.text
    assert exported.headers["Content-Disposition"].startswith('attachment; filename="s.')
    assert ".yaml" not in exported.text
    if form == "json":
        assert json.loads(exported.text)["session"]["session_id"] == "s"


def test_search_finds_messages_of_the_user_alone(alice: Client, service: Service) -> None:
    alice.chat("What is a quokka?", "s")
    service.client("bob").chat("Where do quokkas, the quokka kind, live?", "s")
    hits = alice.get("/api/v1/search?query=quokka").json()["hits"]
    assert [(hit["session_id"], hit["turn"], hit["excerpt"]) for hit in hits] == [("s", 1, "What is a quokka?")]


def test_sessions_of_others_do_not_exist(alice: Client, service: Service) -> None:
    alice.chat("Why?", "s")
    bob = service.client("bob")
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
