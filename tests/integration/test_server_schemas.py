"""Schemas that a client sends: what cannot be used is refused at the door, and no model is asked."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.support.council_server import CouncilServer, council_server
from tests.support.service import Service, make_agent, make_config, make_token

REFUSED: dict[str, tuple[Any, str]] = {
    "no schema": ("text", "no JSON object"),
    "unknown type": ({"type": "objekt"}, "type: 'objekt' is not"),
    "refers to another file": ({"items": {"$ref": "https://example.org/a.json"}}, "refers to https://example"),
}
"""All that is refused: tests/unit/tools/test_answer_schema.py."""


@pytest.fixture(scope="module")
def council() -> Iterator[CouncilServer]:
    with council_server() as server:
        yield server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, council: CouncilServer) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("schemas")
    backend = {"type": "openai", "model": "stub", "base_url": council.url, "api_key": "test"}
    (folder / "slow.yaml").write_text(json.dumps(make_config(make_agent("ann", json.dumps("a" * 5_000 + "!b")))))
    server = {"teams": {"slow": str(folder / "slow.yaml")}, "limits": {"requests": 100_000}}
    config = make_config({"id": "hal", "system_message": "hal", "backend": backend}, server=server)
    service = Service(folder, config).start()
    yield service
    service.stop()


def send(service: Service, path: str, **body: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {make_token('sue')}", "Content-Type": "application/json"}
    data = json.dumps({"model": "massmem", **body})
    return requests.post(f"{service.url}/v1/{path}", data=data, headers=headers, timeout=120)


def ask_chat(service: Service, schema: Any, **more: Any) -> requests.Response:
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    messages = [{"role": "user", "content": "Why?"}]
    return send(service, "chat/completions", messages=messages, response_format=form, **more)


def ask_response(service: Service, schema: Any) -> requests.Response:
    return send(service, "responses", input="Why?", text={"format": {"type": "json_schema", "schema": schema}})


DOORS = {"response_format": ask_chat, "text.format": ask_response}


@pytest.mark.parametrize("door", DOORS)
def test_schema_that_cannot_be_used_is_refused_before_anything_is_paid(
    service: Service, council: CouncilServer, door: str
) -> None:
    answers = {name: DOORS[door](service, schema) for name, (schema, _) in REFUSED.items()}
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code != 400} == {}
    errors = {name: answer.json()["error"] for name, answer in answers.items()}
    assert {error["param"] for error in errors.values()} == {door}
    messages = {name: error["message"] for name, error in errors.items()}
    assert {name: messages[name] for name, (_, why) in REFUSED.items() if why not in messages[name]} == {}
    assert council.requests == []


@pytest.mark.parametrize("number", ["1e999", "NaN", "1" + "0" * 400])
def test_number_that_json_does_not_have_is_refused(service: Service, council: CouncilServer, number: str) -> None:
    headers = {"Authorization": f"Bearer {make_token('sue')}", "Content-Type": "application/json"}
    form = f'{{"type": "json_schema", "json_schema": {{"name": "a", "schema": {{"minimum": {number}}}}}}}'
    body = f'{{"model": "massmem", "messages": [{{"role": "user", "content": "Why?"}}], "response_format": {form}}}'
    answer = requests.post(f"{service.url}/v1/chat/completions", data=body, headers=headers, timeout=60)
    assert answer.status_code in (400, 422), answer.text
    assert council.requests == []


def test_pattern_that_takes_hours_ends_its_own_turn_and_keeps_nobody_waiting(service: Service) -> None:
    answer = ask_chat(service, {"type": "string", "pattern": "^(a+)+$|b$"}, model="massmem/slow")
    assert answer.status_code >= 400, answer.text
    answer = ask_chat(service, {"type": "string", "pattern": "b$"}, model="massmem/slow")
    assert answer.status_code == 200, answer.text
    assert json.loads(answer.json()["choices"][0]["message"]["content"]).endswith("!b")


def test_model_that_is_asked_alone_is_told_the_form_that_its_provider_may_not_take(
    service: Service, council: CouncilServer
) -> None:
    council.requests.clear()
    answer = ask_chat(service, {"type": "string", "pattern": "^a"}, model="massmem/default/hal")
    assert answer.status_code == 200, answer.text
    (request,) = council.requests
    assert '{"type": "string", "pattern": "^a"}' in request.messages[-1]["content"]
    council.requests.clear()
