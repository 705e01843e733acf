"""`/api/v1/memories`, `/context` and `/figures` at a real service: what agents see, remember and cost."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.support.service import Client, Service, StartService, make_agent, make_config, wait_until

MEMORIES = "/api/v1/memories"
ANN, BEN = "Quokkas live on Rottnest Island.", "Quokkas are small wallabies."


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests: each has users of its own."""
    vote = [{"vote_for": "Rottnest", "reason": "because"}]
    config = make_config(make_agent("ann", ANN, vote=vote), make_agent("ben", BEN, vote=vote))
    service = Service(tmp_path_factory.mktemp("service"), config).start()
    yield service
    assert service.stop() == 0


@pytest.fixture
def alice(service: Service) -> Client:
    """A user with one turn, which ann won and which is remembered."""
    client = service.client(f"alice-{uuid4()}")
    assert client.chat("Where do quokkas live?", "s").json()["agent"] == "ann"
    # Two answers, the question, and the final answer, which repeats one of them.
    wait_until(lambda: len(list_memories(client)) >= 3)
    return client


@pytest.fixture
def bob(service: Service) -> Client:
    return service.client(f"bob-{uuid4()}")


def list_memories(client: Client, query: str = "") -> list[dict[str, Any]]:
    return client.get(f"{MEMORIES}?{query}").json()["memories"]


def search(client: Client, **query: Any) -> dict[str, str]:
    """Return why each text is seen."""
    text = "&".join(f"{name}={value}" for name, value in {"query": "quokkas", **query}.items())
    hits = client.get(f"{MEMORIES}/search?{text}").json()["memories"]
    return {memory["text"]: memory["seen_because"] for memory in hits}


def test_agent_sees_its_own_words_the_users_and_the_winners(alice: Client) -> None:
    alice.chat("The quokkas of Rottnest live on grass.", "s")
    for_ann, for_ben = search(alice, agent="ann", session_id="s"), search(alice, agent="ben", session_id="s")
    assert for_ann[ANN] == "own"
    assert BEN not in for_ann
    assert for_ben[BEN] == "own"
    assert for_ben[ANN] == "won"
    assert for_ben["The quokkas of Rottnest live on grass."] == "user"


def test_origins_are_shown_and_filtered(alice: Client) -> None:
    assert {m["text"]: m["origin"] for m in list_memories(alice)}[ANN] == "agent"
    assert {m["origin"] for m in list_memories(alice, "origin=user")} == {"user"}
    assert list_memories(alice, "origin=tool:fetch") == []
    assert [*search(alice, agent="ann", origin="user")] == ["Where do quokkas live?"]
    assert alice.get(f"{MEMORIES}?origin=elsewhere").status_code == 422


def test_values_are_shown_over_time_and_only_to_whom_they_belong(alice: Client, bob: Client) -> None:
    alice.chat("My home is Porto.", "s")
    alice.chat("My home is Ghent. Tell me of the weather.", "t")
    wait_until(lambda: any("Ghent" in memory["text"] for memory in list_memories(alice)))
    (topic,) = alice.get(f"{MEMORIES}/history?query=home").json()["topics"]
    old, new = topic["values"]
    assert (topic["subject"], topic["attribute"], old["value"], new["value"]) == ("user", "home", "Porto", "Ghent")
    assert (old["until"], new["until"], new["by"], new["disputed_by"]) == (new["since"], None, ["user"], [])
    notes = {
        hit["text"]: hit["note"] for hit in alice.get(f"{MEMORIES}/search?query=Where is my home").json()["memories"]
    }
    assert notes["My home is Porto."].startswith("held until ")
    assert notes["My home is Ghent. Tell me of the weather."].startswith("holds since ")
    assert alice.get(f"{MEMORIES}/search?query=home&as_of=2020-01-01").json()["memories"] == []
    assert alice.get(f"{MEMORIES}/search?query=home&as_of=never").status_code == 422
    assert bob.get(f"{MEMORIES}/history?query=home").json()["topics"] == []
    assert bob.get(f"{MEMORIES}/history?query=home&session_id=s").status_code == 404


def test_memories_of_others_are_neither_searched_nor_listed_nor_forgotten(alice: Client, bob: Client) -> None:
    assert search(bob, agent="ann") == {}
    assert list_memories(bob) == []
    memory_id = list_memories(alice)[0]["id"]
    assert bob.get(f"{MEMORIES}/{memory_id}").status_code == 404
    assert bob.delete(f"{MEMORIES}/{memory_id}").status_code == 404
    assert bob.get(f"{MEMORIES}?session_id=s").status_code == 404
    assert bob.get(f"{MEMORIES}/figures").json()["counted"] == 0


def test_memory_leads_to_its_message_and_is_forgotten_for_good(alice: Client) -> None:
    [memory] = [memory for memory in list_memories(alice, "agent=ben") if memory["text"] == BEN]
    details = alice.get(f"{MEMORIES}/{memory['id']}").json()
    assert [(source["agent"], source["turn"], source["text"]) for source in details["sources"]] == [("ben", 1, BEN)]
    receipt = alice.delete(f"{MEMORIES}/{memory['id']}").json()
    assert (receipt["id"], receipt["entries"]) == (memory["id"], 1)
    assert BEN not in search(alice, agent="ben")
    assert alice.delete(f"{MEMORIES}/{memory['id']}").status_code == 404


def test_statement_is_forgotten_in_everything_of_its_user_and_of_nobody_else(service: Service) -> None:
    carol, dave = service.client("carol"), service.client("dave")
    for client in (carol, dave):
        client.chat("My door code is 4711-zulu. What is a kite?", "s")
        wait_until(lambda client=client: any("4711-zulu" in memory["text"] for memory in list_memories(client)))
    [memory] = [memory for memory in list_memories(carol) if "4711-zulu" in memory["text"]]
    forgotten = carol.delete(f"{MEMORIES}/{memory['id']}?everywhere=true").json()
    receipt = forgotten["receipt"]
    assert (receipt["complete"], receipt["deleted"]["sessions"]) == (True, ["s"])
    assert receipt["checks"]["files_found"] == []
    assert "4711-zulu" not in str(forgotten)
    history = str(carol.get("/api/v1/chat/history/s").json())
    assert "[forgotten]" in history
    assert "4711-zulu" not in history + str(list_memories(carol)) + str(carol.get("/api/v1/sessions").json())
    assert "4711-zulu" in str(dave.get("/api/v1/chat/history/s").json())
    assert any("4711-zulu" in memory["text"] for memory in list_memories(dave))
    assert dave.delete(f"{MEMORIES}/{memory['id']}?everywhere=true").status_code == 404


def test_forgetting_by_a_user_changes_no_file_of_the_operator_and_tells_nothing_of_others(service: Service) -> None:
    erin, frank, gina = (service.client(name) for name in ("erin", "frank", "gina"))
    shared, alone = "The code of my locker is 5112-mike.", "The code of my locker is 5113-mike."
    home = service.home / ".massmem"
    files = [
        home / "history", home / "logs" / "massmem.log", home / "logs" / "crash-1.txt", home / "sessions.json.before",
        home / "evaluations" / "report.json", service.home / ".massmem" / "massmem_logs" / "log_1" / "turn.json",
    ]  # fmt: skip
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{shared}\n{alone}\n")
    receipts: list[dict[str, Any]] = []
    for client, statement in ((gina, shared), (erin, shared), (frank, alone)):
        client.chat(f"{statement} What is a kite?", "s")
        wait_until(lambda c=client, text=statement: any(text in memory["text"] for memory in list_memories(c)))
    for client, statement in ((erin, shared), (frank, alone)):
        [memory] = [memory for memory in list_memories(client) if statement in memory["text"]]
        receipts.append(client.delete(f"{MEMORIES}/{memory['id']}?everywhere=true").json()["receipt"])
    first, second = [receipt | {"forgotten_at": "", "memory_ids": []} for receipt in receipts]
    assert first == second
    assert [file.read_text() for file in files] == [f"{shared}\n{alone}\n"] * len(files)
    assert shared in str(gina.get("/api/v1/chat/history/s").json())


def test_memory_is_added_corrected_and_pinned_by_its_user_alone(alice: Client, bob: Client) -> None:
    added = alice.post(MEMORIES, {"text": "Quokkas are not to be fed.", "session_id": "s"})
    assert added.status_code == 201
    memory = added.json()
    path = f"{MEMORIES}/{memory['short_id']}"
    assert alice.patch(path, {"text": "Quokkas eat leaves."}).json()["text"] == "Quokkas eat leaves."
    assert alice.put(f"{path}/pin").json()["pinned"] is True
    details = alice.get(path).json()
    assert (details["memory"]["id"], details["memory"]["agent_id"]) == (memory["id"], "user")
    first, second = details["changes"]
    assert (first["action"], first["old"], first["text"]) == ("edit", memory["text"], "Quokkas eat leaves.")
    assert second["action"] == "pin"
    found = alice.get(f"{MEMORIES}/search?query=bicycles&session_id=s&all=true").json()
    assert (found["memories"][0]["id"], found["memories"][0]["pinned"]) == (memory["id"], True)
    assert [m["id"] for m in list_memories(alice, "pinned=true")] == [memory["id"]]
    for answer in (
        bob.get(path), bob.patch(path, {"text": "No."}), bob.put(f"{path}/pin"), bob.delete(f"{path}/pin"),
        bob.post(MEMORIES, {"text": "No.", "session_id": "s"}),
    ):  # fmt: skip
        assert answer.status_code == 404
    assert alice.delete(f"{path}/pin").json()["pinned"] is False
    for text in ("", " ", "x" * 2_001):
        assert alice.patch(path, {"text": text}).status_code == 422
        assert alice.post(MEMORIES, {"text": text}).status_code == 422


def test_figures_count_memories_turns_and_wins(alice: Client, bob: Client, service: Service) -> None:
    remembered = alice.get(f"{MEMORIES}/figures").json()
    assert {agent["agent_id"] for agent in remembered["agents"]} == {"ann", "ben", "user"}
    assert sum(remembered["turns"].values()) == remembered["counted"] == len(list_memories(alice))
    assert remembered["queue"] is None
    assert service.client("root", "admin").get(f"{MEMORIES}/figures").json()["queue"]["failed"] == 0
    figures = alice.get("/api/v1/figures?days=1").json()
    [day] = figures["days"]
    assert (day["turns"], day["answered"]) == (1, 1)
    assert (day["agents"]["ann"]["wins"], day["agents"]["ben"]["wins"]) == (1, 0)
    assert day["agents"]["ann"]["tokens"] > 0
    assert figures["agents"]["ben"]["name"] == "ben"
    assert bob.get("/api/v1/figures").json()["days"] == []


def test_context_shows_what_each_agent_is_sent(alice: Client) -> None:
    agents = alice.post("/api/v1/sessions/s/context", {}).json()["agents"]
    assert [agent["agent_id"] for agent in agents] == ["ann", "ben"]
    parts = [(part["kind"], part["role"], part["text"]) for part in agents[0]["parts"]]
    assert parts[0][0] == "system"
    assert parts[1:] == [("history", "user", "Where do quokkas live?"), ("history", "assistant", ANN)]
    assert agents[0]["tokens"] == sum(part["tokens"] for part in agents[0]["parts"])
    [_, ben] = alice.post("/api/v1/sessions/s/context", {"question": "What are quokkas?"}).json()["agents"]
    kinds = {part["kind"]: part["text"] for part in ben["parts"]}
    assert kinds["question"] == "What are quokkas?"
    assert BEN in kinds["memories"]
    assert len(alice.read_history("s")) == 2


def test_project_of_a_conversation_bounds_what_is_recalled(start_service: StartService) -> None:
    """Its name is the user's own: others use the same one."""
    shared = {"persistent_memory": {"session_name": None, "embedding": {"provider": "none"}}}
    service = start_service(make_config(make_agent("ann", ANN), memory=shared))
    bob, eve = service.client("bob"), service.client("eve")
    ghent, porto = "Our own herons nest in Ghent.", "Our herons nest in Porto, too."
    for client, message in ((bob, ghent), (eve, "Our secret herons nest in Lille.")):
        asked = {"message": message, "session_id": "s", "project": "alpha"}
        assert client.post("/api/v1/chat", asked).status_code == 200
    completion = {"model": "massmem", "messages": [{"role": "user", "content": porto}]}
    sent = {**completion, "metadata": {"project": "beta"}}
    assert bob.post("/v1/chat/completions", sent).status_code == 200
    added = bob.post(MEMORIES, {"text": "Herons are birds.", "project": ""}).json()
    assert (added["project"], added["is_global"]) == ("", False)
    wait_until(lambda: len(list_memories(bob, "agent=user")) == 3)

    def find(**query: str) -> set[str]:
        return {text for text, why in search(bob, query="herons nest", **query).items() if why == "user"}

    assert find(project="alpha") == {ghent, "Herons are birds."}
    assert find(project="beta") == {porto, "Herons are birds."}
    assert find() == {"Herons are birds."}
    sessions = bob.get("/api/v1/sessions").json()["sessions"]
    assert sorted(session["project"] for session in sessions) == ["", "alpha", "beta"]
    (memory,) = [m for m in list_memories(bob, "agent=user") if m["text"] == ghent]
    assert bob.put(f"{MEMORIES}/{memory['id']}/global").json()["is_global"]
    assert ghent in find()
    assert bob.delete(f"{MEMORIES}/{memory['id']}/global").json()["project"] == "alpha"
    assert find() == {"Herons are birds."}
    moved = bob.post("/api/v1/chat", {"message": "And now?", "session_id": "s", "project": "beta"})
    assert (moved.status_code, "belongs to the project alpha" in moved.text) == (422, True)
