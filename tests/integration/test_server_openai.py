"""The council as a model: a real service, and OpenAI's own Python SDK as its client."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion

from tests.support.council_server import CouncilServer, council_server
from tests.support.pictures import PNG
from tests.support.service import Client, Service, StartService, make_agent, make_config, make_token, wait_until

TITLE_PROMPT = "### Task:\nGenerate a concise title.\n### Chat History:\n<chat_history>\nUSER: Why?\n</chat_history>"


PAGE = "https://light.example/rayleigh"
CITED = {"text": "It is blue [1].", "searches": ["sky"], "citations": [{"url": PAGE, "title": "Rayleigh"}]}

BEGUN = {"text": "The sky is", "error": "interrupted"}


@pytest.fixture(scope="module")
def council() -> Iterator[CouncilServer]:
    """The models of the team `held`."""
    with council_server() as server:
        yield server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, council: CouncilServer) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("openai")
    held = {"type": "openai", "model": "stub", "base_url": council.url, "api_key": "test"}
    teams = {
        "held": make_config({"id": "hal", "system_message": "hal", "backend": held}),
        "form": make_config(make_agent("fay", '{"color": "blue"}')),
        "broken": make_config(make_agent("eve", "x", answer=[{"error": "auth"}])),
        "orders": make_config(
            make_agent("ann", "Sent.", answer=[{"ask": "order_id", "ask_prompt": "Which?", "text": "Sent."}]),
            params={"order_id": {"pattern": r"O-\d{5}"}},
        ),
        "sighted": make_config(make_agent("pia", "A dot.")),
        "begun": make_config(make_agent("eva", "x", answer=[BEGUN, "It is blue."])),
        "cited": make_config(
            make_agent("ann", "x", answer=[CITED], vote=[{"vote_for": "blue"}], present="It is blue [1], says [7]."),
            make_agent("bob", "It is.", vote=[{"vote_for": "blue"}]),
        ),
    }
    for name, team in teams.items():
        (folder / f"{name}.yaml").write_text(json.dumps(team))
    config = make_config(
        make_agent("ann", "It is blue.", chunk_size=3),
        make_agent("bob", "It is green.", vote=[{"vote_for": "It is blue.", "reason": "because"}]),
        server={
            "teams": {name: str(folder / f"{name}.yaml") for name in teams},
            "limits": {"requests": 100_000, "turns_per_user": 2},
        },
    )
    service = Service(folder, config).start()
    yield service
    service.stop()


Connect = Callable[..., Any]
"""Returns an SDK client, without its annotations: requests here are built from parts, and some are wrong."""


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as clients:

        def connect_as(service: Service, user: str, **options: Any) -> OpenAI:
            client = OpenAI(base_url=f"{service.url}/v1", api_key=make_token(user), max_retries=0, **options)
            return clients.enter_context(client)

        yield connect_as


def say(*texts: str, system: str = "") -> list[Any]:
    """Return messages: the user's and the assistant's in turn."""
    roles = ["user", "assistant"] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return ([{"role": "system", "content": system}] if system else []) + messages


def ask(client: Any, *texts: str, model: str = "massmem", **options: Any) -> tuple[ChatCompletion, str]:
    """Return the answer, and its session."""
    raw = client.chat.completions.with_raw_response.create(model=model, messages=say(*texts), **options)
    return raw.parse(), raw.headers.get("x-session-id") or ""


def text_of(completion: ChatCompletion) -> str:
    return completion.choices[0].message.content or ""


def refusal_of(client: Any, **request: Any) -> tuple[int, str | None, str | None]:
    """Return status, param and code of the error."""
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(**{"model": "massmem", "messages": say("Why?"), **request})
    body: Any = refused.value.body
    assert body["message"]
    return refused.value.status_code, body["param"], body["code"]


def test_teams_and_agents_are_models(service: Service, connect: Connect) -> None:
    client = connect(service, "models")
    names = [model.id for model in client.models.list()]
    assert names[:4] == ["massmem", "massmem/default", "massmem/default/ann", "massmem/default/bob"]
    assert {"massmem/held", "massmem/held/hal"} <= set(names)
    assert client.models.retrieve("massmem/held/hal").id == "massmem/held/hal"
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("massmem/held/nobody")
    assert refused.value.code == "model_not_found"


def test_council_answers_with_its_progress_and_usage(service: Service, connect: Connect) -> None:
    completion, session_id = ask(connect(service, "ada"), "Why is the sky blue?")
    assert text_of(completion) == "It is blue."
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens > 100
    progress = getattr(completion.choices[0].message, "reasoning_content", "")
    assert "bob votes for ann" in progress
    assert session_id not in progress
    assert service.client("ada").read_history(session_id) == [
        ("user", "Why is the sky blue?"), ("assistant", "It is blue."),
    ]  # fmt: skip


def test_stream_has_progress_then_words_then_usage(service: Service, connect: Connect) -> None:
    stream = connect(service, "bea").chat.completions.create(
        model="massmem/default", messages=say("Why?"), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert len({chunk.id for chunk in chunks}) == 1
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    kinds = ["progress" if getattr(delta, "reasoning_content", None) else "words" for delta in deltas[1:-1]]
    assert kinds == sorted(kinds)
    assert "".join(delta.content or "" for delta in deltas) == "It is blue."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens > 0


def test_resent_history_goes_on_with_its_session_and_is_not_stored_twice(service: Service, connect: Connect) -> None:
    client = connect(service, "cara")
    _, session_id = ask(client, "Why?")
    # Clients trim texts, and prompts of theirs may have the date.
    assert ask(client, " Why? ", "It is blue.\n", "And at night?")[1] == session_id
    messages = say("Why?", "It is blue.", "And at night?", "It is blue.", "Sure?", system="Today is Monday.")
    raw = client.chat.completions.with_raw_response.create(model="massmem", messages=messages)
    assert raw.headers["x-session-id"] == session_id
    questions = [text for role, text in service.client("cara").read_history(session_id) if role == "user"]
    assert questions == ["Why?", "And at night?", "Sure?"]


def test_history_of_another_user_is_a_new_session(service: Service, connect: Connect) -> None:
    _, session_id = ask(connect(service, "dan"), "Why dan?")
    _, other_id = ask(connect(service, "eli"), "Why dan?", "It is blue.", "More?")
    assert other_id != session_id
    assert service.client("eli").get(f"/api/conversation/{session_id}").status_code == 404
    assert len(service.client("dan").read_history(session_id)) == 2


def test_edited_history_begins_a_session_that_agents_know(
    service: Service, council: CouncilServer, connect: Connect
) -> None:
    client = connect(service, "fred")
    answer, session_id = ask(client, "What is a penguin?", model="massmem/held")
    council.requests.clear()
    messages = say("What is an owl?", text_of(answer), "Can it fly?", system="Answer like a pirate.")
    raw = client.chat.completions.with_raw_response.create(model="massmem/held", messages=messages)
    fork_id = raw.headers["x-session-id"]
    assert fork_id != session_id
    prompt = council.requests[0].messages
    assert "Answer like a pirate." in prompt[0]["content"]
    assert [message["content"] for message in prompt[1:]] == ["What is an owl?", text_of(answer), "Can it fly?"]
    assert len(service.client("fred").read_history(session_id)) == 2
    history = service.client("fred").read_history(fork_id)
    assert [text for _, text in history][:3] == ["What is an owl?", text_of(answer), "Can it fly?"]
    # What the system message says is of this request only.
    ask(client, *(text for _, text in history), "And swim?", model="massmem/held")
    assert "pirate" not in json.dumps(council.requests[-1].messages)


@pytest.mark.parametrize(
    "naming",
    [
        {"metadata": {"session_id": "my-chat"}},
        {"extra_headers": {"X-Session-Id": "my-chat"}},
    ],
)
def test_named_session_is_gone_on_with_whatever_is_resent(
    service: Service, naming: dict[str, Any], connect: Connect
) -> None:
    user = f"gail-{next(iter(naming))}"
    client = connect(service, user)
    assert ask(client, "One?", **naming)[1] == "my-chat"
    assert ask(client, "Two?", **naming)[1] == "my-chat"
    assert [text for role, text in service.client(user).read_history("my-chat") if role == "user"] == ["One?", "Two?"]


def test_chat_of_open_webui_is_a_session_until_its_user_edits_it(service: Service, connect: Connect) -> None:
    client = connect(service, "hugo", default_headers={"X-OpenWebUI-Chat-Id": "0b5d-chat"})
    assert ask(client, "One?")[1] == "0b5d-chat"
    # The client may send a text with what it has found on the web, and resend it without.
    assert ask(client, "One", "It is blue.", "Two?")[1] == "0b5d-chat"
    regenerated = ask(client, "One?")[1]
    assert regenerated != "0b5d-chat"
    assert ask(client, "One?", "It is blue.", "Two, again?")[1] == regenerated
    assert ask(connect(service, "hugo", default_headers={"X-OpenWebUI-Chat-Id": "local:x y"}), "Hm?")[1] != ""


def test_session_is_found_after_a_restart(start_service: StartService, connect: Connect) -> None:
    first = start_service(make_config())
    _, session_id = ask(connect(first, "ida"), "Why?")
    first.stop()
    second = start_service(make_config())
    assert ask(connect(second, "ida"), "Why?", "It is blue.", "More?")[1] == session_id


@pytest.mark.parametrize(
    "request_",
    [
        {"model": "massmem/default/bob"},
        {"extra_headers": {"X-Massmem-Solo": "1"}},
        {"messages": say(TITLE_PROMPT)},
        {"metadata": {"task": "title_generation"}},
    ],
    ids=["agent", "header", "Open WebUI", "metadata"],
)
def test_one_model_alone_answers_and_nothing_is_remembered(
    service: Service, request_: dict[str, Any], connect: Connect
) -> None:
    user = f"jo-{'-'.join(request_)}-{len(str(request_))}"
    raw = connect(service, user).chat.completions.with_raw_response.create(
        **{"model": "massmem", "messages": say("Why?", "So.", "Why?"), **request_}
    )
    completion = raw.parse()
    assert "x-session-id" not in raw.headers
    assert text_of(completion) == ("It is green." if "bob" in completion.model else "It is blue.")
    assert completion.usage is not None
    assert completion.usage.completion_tokens < 10
    assert service.client(user).list_sessions() == []


def test_agent_alone_streams(service: Service, connect: Connect) -> None:
    stream = connect(service, "kim").chat.completions.create(
        model="massmem/default/ann", messages=say("Why?"), stream=True, stop="blue"
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "It is "


def test_stream_ends_with_an_error_after_words_of_a_failed_attempt(service: Service, connect: Connect) -> None:
    client, words = connect(service, "ken"), list[str]()
    with pytest.raises(openai.APIError, match="does not count: its attempt failed"):
        for chunk in client.chat.completions.create(model="massmem/begun", messages=say("Why?"), stream=True):
            words.append(chunk.choices[0].delta.content or "")
    assert "".join(words) == "The sky is"
    assert text_of(ask(client, "Why?", model="massmem/begun")[0]) == "It is blue."


def test_stop_and_limit_of_tokens_end_the_answer(service: Service, connect: Connect) -> None:
    client = connect(service, "leo")
    assert text_of(ask(client, "a", stop=["is", "never"])[0]) == "It "
    short, _ = ask(client, "b", max_completion_tokens=1)
    assert (text_of(short), short.choices[0].finish_reason) == ("It i", "length")
    assert ask(client, "b", "It i", "c")[0].choices[0].finish_reason == "stop"


def test_answer_follows_a_schema(service: Service, connect: Connect) -> None:
    schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "color", "schema": schema}}
    completion, _ = ask(connect(service, "mia"), "Why?", model="massmem/form", response_format=form)
    assert json.loads(text_of(completion)) == {"color": "blue"}


def test_council_that_needs_a_value_asks_and_takes_the_reply(service: Service, connect: Connect) -> None:
    client = connect(service, "nat")
    question, session_id = ask(client, "Where is my order?", model="massmem/orders")
    assert text_of(question) == "Which?"
    answer, same_id = ask(client, "Where is my order?", "Which?", "O-12345", model="massmem/orders")
    assert (text_of(answer), same_id) == ("Sent.", session_id)


def test_picture_in_a_message_is_shown(service: Service, connect: Connect) -> None:
    url = f"data:image/png;base64,{b64encode(PNG).decode()}"
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    messages: Any = [{"role": "user", "content": content}]
    client = connect(service, "ola")
    seen = client.chat.completions.create(model="massmem/sighted", messages=messages)
    assert text_of(seen) == "A dot."
    bad: Any = [{"role": "user", "content": [content[0], {"type": "image_url", "image_url": {"url": "http://x/y"}}]}]
    assert refusal_of(client, messages=bad)[0] == 400


def test_errors_have_the_form_of_the_api(service: Service, connect: Connect) -> None:
    client = connect(service, "pam")
    assert refusal_of(client, model="gpt-4") == (404, "model", "model_not_found")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"n": 2}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": say("a", "b")}, "messages"),
        ({"messages": [{"role": "king", "content": "a"}]}, "messages.0.role"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"metadata": {"session_id": "a/b"}}, "metadata.session_id"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"max_tokens": 0}, "max_tokens"),
    ]
    for request, param in refused:
        assert refusal_of(client, **request)[:2] == (400, param)
    assert refusal_of(client, model="massmem/broken")[0] == 502
    for key in ("x", "nonsense", "sk-massmem-0"):
        response = httpx2.get(f"{service.url}/v1/models", headers={"Authorization": f"Bearer {key}"})
        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
    assert httpx2.get(f"{service.url}/v1/nothing").json()["error"]["type"] == "invalid_request_error"


def test_unknown_fields_and_tools_are_tolerated(service: Service, connect: Connect) -> None:
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    completion, _ = ask(
        connect(service, "quin"), "Why?", tools=[tool], tool_choice="auto", user="q", seed=1, top_p=0.5,
        extra_body={"chat_id": "x", "background_tasks": {}, "nonsense": [1]},
    )  # fmt: skip
    assert text_of(completion) == "It is blue."


def test_client_that_goes_away_stops_the_council(service: Service, council: CouncilServer, connect: Connect) -> None:
    client = connect(service, "ray")
    for stream in (False, True):
        council.gate.clear()
        asked = len(council.requests)
        name = f"gone-{stream}"

        def request(name: str = name, *, stream: bool = stream) -> None:
            with pytest.raises(openai.APITimeoutError):
                for _ in client.chat.completions.create(
                    model="massmem/held", messages=say("Why?"), stream=stream, timeout=1.5,
                    extra_headers={"X-Session-Id": name},
                ):  # fmt: skip
                    pass

        request()
        assert len(council.requests) > asked
        wait_until(lambda name=name: service.client("ray").chat("", name).status_code == 422)
        council.gate.set()
        wait_until(lambda: "interrupted" in service.client("ray", "metrics").get("/metrics").text)
        assert service.client("ray").read_history(name) == [("user", "Why?")]


def test_second_question_to_a_busy_session_is_a_conflict(
    service: Service, council: CouncilServer, connect: Connect
) -> None:
    client = connect(service, "sue")
    naming: dict[str, Any] = {"extra_headers": {"X-Session-Id": "busy"}, "model": "massmem/held"}
    council.gate.clear()
    asked = len(council.requests)
    with ThreadPoolExecutor(1) as pool:
        try:
            first = pool.submit(lambda: ask(client, "One?", **naming))
            wait_until(lambda: len(council.requests) > asked)
            assert refusal_of(client, **naming) == (409, None, "session_busy")
        finally:
            council.gate.set()
        assert text_of(first.result()[0])


def test_limit_of_questions_is_a_rate_limit_error(start_service: StartService, connect: Connect) -> None:
    service = start_service(make_config(server={"limits": {"requests": 1}}))
    client = connect(service, "tom")
    assert len(client.models.list().data) == 3
    with pytest.raises(openai.RateLimitError) as refused:
        client.models.list()
    assert int(refused.value.response.headers["retry-after"]) > 0


def test_a_history_is_read_part_by_part(service: Service, connect: Connect) -> None:
    client: Any = connect(service, "vic")
    parts = [
        {"type": "thinking", "thinking": "private", "signature": "x"},
        {"type": "refusal", "refusal": "I will not."},
        {"type": "sonata", "notes": [1]},
    ]
    question = {"role": "user", "content": [{"type": "input_text", "text": "Why?"}]}
    history = [{"role": "user", "content": ["Hm?"]}, {"role": "assistant", "content": parts}]
    called = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    completion = client.chat.completions.with_raw_response.create(model="massmem", messages=[*history, question])
    response = client.responses.create(model="massmem", input=[*history, {"type": "reasoning"}, called, question])
    for session_id in (completion.headers["x-session-id"], response.metadata["session_id"]):
        texts = [text for _, text in service.client("vic").read_history(session_id)]
        assert texts[:2] == ["Hm?", "I will not.\n\n[sonata: not read]"]
    for part in ({"type": "input_audio", "input_audio": {}}, {"type": "image_url", "image_url": 5}):
        odd = {"role": "user", "content": [{"type": "text", "text": "Why?"}, part]}
        for create in (
            lambda odd=odd: client.chat.completions.create(model="massmem", messages=[odd]),
            lambda odd=odd: client.responses.create(model="massmem", input=[odd]),
        ):
            with pytest.raises(openai.BadRequestError, match=part["type"]):
                create()


def test_responses_go_on_from_one_another(service: Service, connect: Connect) -> None:
    client = connect(service, "uma")
    first = client.responses.create(model="massmem", input="Why?", instructions="Be brief.")
    assert (first.output_text, first.status) == ("It is blue.", "completed")
    assert [item.type for item in first.output] == ["reasoning", "message"]
    assert first.usage is not None
    assert first.usage.total_tokens > 100
    second = client.responses.create(model="massmem", input="More?", previous_response_id=first.id)
    session_id: str = first.metadata["session_id"]
    assert second.metadata["session_id"] == session_id
    assert len(service.client("uma").read_history(session_id)) == 4
    for response_id, status in ((first.id, 400), ("resp_1.nothing", 404), ("resp_x", 404), ("resp_9.../x", 404)):
        with pytest.raises(openai.APIStatusError) as refused:
            client.responses.create(model="massmem", input="More?", previous_response_id=response_id)
        assert refused.value.status_code == status
    with pytest.raises(openai.NotFoundError):
        connect(service, "vic").responses.create(model="massmem", input="More?", previous_response_id=second.id)


def test_responses_stream_as_the_sdk_expects(service: Service, connect: Connect) -> None:
    kinds: list[str] = []
    with connect(service, "wim").responses.stream(
        model="massmem",
        input=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Why?"}]},
        ],
    ) as stream:
        kinds += [event.type for event in stream]
        final = stream.get_final_response()
    assert final.output_text == "It is blue."
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds.index("response.reasoning_summary_text.delta") < kinds.index("response.output_text.delta")
    assert kinds[-1] == "response.completed"


def test_progress_and_errors_name_no_secrets(service: Service, tmp_path: Path, connect: Connect) -> None:
    completion, _ = ask(connect(service, "xan"), "My key is sk-proj-0123456789abcdefghij?")
    assert "0123456789abcdef" not in getattr(completion.choices[0].message, "reasoning_content", "")
    assert str(tmp_path.parent) not in completion.model_dump_json()


def test_sources_are_annotations_streamed_and_not(service: Service, connect: Connect) -> None:
    client, text = connect(service, "sources"), "It is blue [1], says."
    expected = {"url": PAGE, "title": "Rayleigh", "start_index": text.index("["), "end_index": text.index("]") + 1}
    completion, _ = ask(client, "Why?", model="massmem/cited")
    assert text_of(completion) == text
    [annotation] = completion.choices[0].message.annotations or []
    assert annotation.url_citation.model_dump() == expected
    chunks = [*client.chat.completions.create(model="massmem/cited", messages=say("Why?"), stream=True)]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == text
    assert [a["url_citation"] for delta in deltas for a in getattr(delta, "annotations", None) or []] == [expected]
    response = client.responses.create(model="massmem/cited", input="Why?")
    assert [a.model_dump() for a in response.output[-1].content[0].annotations] == [
        {"type": "url_citation", **expected}
    ]
    with client.responses.stream(model="massmem/cited", input="Why?") as stream:
        added = [event.annotation for event in stream if event.type == "response.output_text.annotation.added"]
        final = stream.get_final_response()
    assert [(a.url, a.start_index, a.end_index) for a in added] == [(PAGE, 11, 14)]
    assert [a.url for a in final.output[-1].content[0].annotations] == [PAGE]
    alone, _ = ask(client, "Why?", model="massmem/cited/ann")
    assert [a.url_citation.url for a in alone.choices[0].message.annotations or []] == [PAGE]


def test_sources_are_in_answers_and_histories(service: Service) -> None:
    user = Client(service.url, make_token("historian"))
    reply = user.post("/api/v1/chat", {"message": "Why?", "team": "cited", "session_id": "cited-1"}).json()
    assert [(c["url"], c["title"], c["agent_id"]) for c in reply["citations"]] == [(PAGE, "Rayleigh", "ann")]
    messages = user.get("/api/v1/chat/history/cited-1").json()["messages"]
    assert [[c["url"] for c in m.get("citations", [])] for m in messages] == [[], [PAGE]]
    assert user.get("/api/conversation/cited-1").json()["messages"][-1]["citations"] == [PAGE]
    assert user.get("/api/v1/sessions/cited-1").json()["turns"][-1]["citations"][0]["url"] == PAGE
