import asyncio
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import BackendConfig
from massmem.core.errors import MissingKeyError
from massmem.core.messages import Usage
from massmem.providers.discovery import WINDOW_PATIENCE
from massmem.providers.endpoints import resolve
from massmem.providers.learnt import FILE, LearntModels
from massmem.providers.windows import (
    ASSUMED_WINDOW,
    ContextWindow,
    ask_served_window,
    find_cut,
    find_window,
    is_short_count,
)
from tests.support.provider_stub import KEY, Cut, Http, Stub

NOBODY = "http://127.0.0.1:9/v1"


def says(value: object) -> Http:
    return Http(headers={"content-type": "application/json"}, parts=[json.dumps(value).encode()])


def list_reply(**fields: Any) -> Http:
    return says({"object": "list", "data": [{"id": "other", "max_model_len": 1}, {"id": "m", **fields}]})


async def window(type_: str, url: str | None, model: str = "m", **fields: Any) -> ContextWindow:
    fields = {"type": type_, "model": model, "base_url": url, "api_key": KEY, **fields}
    return await find_window(BackendConfig.model_validate(fields), {})


def show_reply(parameters: str, **fields: Any) -> dict[str, Http]:
    model = {"parameters": parameters, "model_info": {"llama.context_length": 131_072}, **fields}
    return {"/api/ps": says({"models": []}), "/api/show": says(model)}


def running(tokens: int) -> Http:
    return says({"models": [{"name": "big:7b", "context_length": 1}, {"name": "m:latest", "context_length": tokens}]})


SERVERS: dict[str, tuple[str, dict[str, Http], int]] = {
    "vllm": ("vllm", {"/v1/models": list_reply(max_model_len=40_960)}, 40_960),
    "groq": ("groq", {"/v1/models": list_reply(context_window=131_072)}, 131_072),
    "openrouter": ("openrouter", {"/v1/models": list_reply(context_length=262_144)}, 262_144),
    "mistral": ("mistral", {"/v1/models": list_reply(max_context_length=128_000)}, 128_000),
    "any server at another address": ("openai", {"/v1/models": list_reply(max_model_len=16_384)}, 16_384),
    "llama.cpp: of one slot": (
        "llamacpp",
        {"/props": says({"default_generation_settings": {"n_ctx": 2_048}, "total_slots": 4})},
        2_048,
    ),
    "llama.cpp at another address": (
        "openai",
        {
            "/v1/models": list_reply(meta={"n_ctx_train": 32_768}),
            "/props": says({"default_generation_settings": {"n_ctx": 999}}),
        },
        999,
    ),
    "Ollama, the model runs": (
        "ollama",
        {"/api/ps": running(8_192), **show_reply("num_ctx 4000") | {"/api/ps": running(8_192)}},
        8_192,
    ),
    "Ollama, its Modelfile sets it": (
        "ollama",
        show_reply('stop "x"\nnum_ctx                        16384\ntop_k 20'),
        16_384,
    ),
    "Ollama's cloud": ("ollama", show_reply("", remote_model="m:671b"), 131_072),
    "Ollama at another address": ("openai", {"/api/ps": running(5_000)}, 5_000),
    "LM Studio": (
        "lmstudio",
        {"/api/v0/models": list_reply(max_context_length=131_072, loaded_context_length=8_000)},
        8_000,
    ),
}


@pytest.mark.parametrize("name", SERVERS)
async def test_the_server_is_asked_in_its_own_way(stub: Stub, name: str):
    type_, stub.routes, tokens = SERVERS[name]
    assert await window(type_, f"{stub.url}/v1") == ContextWindow(tokens, "server")


async def test_anthropic_is_asked_for_the_longest_prompt(stub: Stub):
    stub.routes = {"/v1/models/claude-x": says({"id": "claude-x", "max_input_tokens": 1_000_000, "max_tokens": 64_000})}
    assert await window("anthropic", stub.url, "claude-x") == ContextWindow(1_000_000, "server")
    (asked,) = stub.requests
    assert asked.headers["x-api-key"] == KEY
    assert "authorization" not in asked.headers


async def test_only_ollama_is_sent_a_post(stub: Stub):
    """Another server might take it for a question to its model."""
    stub.routes = {"/api/ps": list_reply(), "/api/show": says({"parameters": "num_ctx 4000"})}
    assert (await window("openai", f"{stub.url}/v1")).source != "server"
    assert "/api/show" not in {asked.path for asked in stub.requests}


async def test_a_configured_window_wins_and_no_server_is_asked(stub: Stub):
    stub.routes = {"/v1/models": list_reply(max_model_len=40_960)}
    assert await window("vllm", f"{stub.url}/v1", context_window=1_000) == ContextWindow(1_000, "config")
    assert stub.requests == []


async def test_providers_that_name_no_windows_are_not_asked(stub: Stub):
    for type_ in ("deepseek", "gemini", "grok", "cerebras", "azure_openai"):
        at_home = type_ == "azure_openai"
        given = {
            "type": type_,
            "model": "deepseek-chat",
            "api_key": KEY,
            "base_url": f"{stub.url}/v1" if at_home else None,
        }
        assert (await find_window(BackendConfig.model_validate(given), {})).source == "table"
    assert stub.requests == []


@pytest.mark.parametrize("type_", ["ollama", "lmstudio"])
async def test_a_model_that_is_not_loaded_has_the_default_of_its_server(stub: Stub, type_: str):
    """Not the 131,072 that the model could read: the server would cut the prompt and say nothing."""
    stub.routes = {
        **show_reply("top_k 20"),
        "/api/v0/models": list_reply(max_context_length=131_072, state="not-loaded"),
    }
    assert await window(type_, f"{stub.url}/v1") == ContextWindow(4_096, "assumed")


ODD: dict[str, Http] = {
    "page": Http(headers={"content-type": "text/html"}, parts=[b"<html>"]),
    "list": says([1, 2]),
    "null": says({"data": None, "default_generation_settings": None, "models": {}}),
    "words": list_reply(max_model_len="many"),
    "bool": list_reply(max_model_len=True),
    "zero": list_reply(max_model_len=0),
    "absurd": list_reply(max_model_len=10**18),
    "deep": Http(parts=[b"[" * 100_000]),
    "endless": Http(parts=[b" " * 1_000_000] * 9),
    "error": Http(500, parts=[b'{"data": [{"id": "m", "max_model_len": 4096}]}']),
    "redirect": Http(302, headers={"location": "/v1/elsewhere"}),
    "cut": Http(parts=[b'{"da', Cut]),
    "silent": Http(head=False, parts=[Cut]),
    "no gzip": Http(headers={"content-encoding": "gzip"}, parts=[b"plain"]),
}


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_reply_falls_back_to_the_price_list(stub: Stub, name: str):
    stub.replies = [ODD[name]]
    stub.routes = {"/v1/elsewhere": list_reply(max_model_len=4_096)}
    assert await window("openai", f"{stub.url}/v1", "gpt-4o-mini") == ContextWindow(128_000, "table")


async def test_an_unreachable_server_is_not_waited_for():
    started = time.monotonic()
    assert await window("vllm", NOBODY, "unheard-of") == ContextWindow(ASSUMED_WINDOW, "assumed")
    assert time.monotonic() - started < WINDOW_PATIENCE


async def test_a_silent_server_is_given_up_after_seconds(stub: Stub):
    stub.replies = [Http(head=False, parts=[60.0])]
    started = time.monotonic()
    others = asyncio.create_task(asyncio.sleep(0.2))
    assert await window("openai", f"{stub.url}/v1", "Qwen/Qwen2.5-7B-Instruct") == ContextWindow(32_768, "table")
    assert time.monotonic() - started < 10 * WINDOW_PATIENCE
    assert others.done()


async def test_a_missing_key_is_an_error():
    with pytest.raises(MissingKeyError):
        await find_window(BackendConfig(type="groq", model="m"), {})


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ({"type": "local"}, ContextWindow(4_096, "server")),
        ({"type": "local", "context_window": 1_024}, ContextWindow(1_024, "config")),
        ({"type": "scripted", "script": {"context_window": 600}}, ContextWindow(600, "config")),
        ({"type": "scripted"}, ContextWindow(128_000, "assumed")),
    ],
)
async def test_windows_of_models_in_this_process(backend: dict[str, Any], expected: ContextWindow):
    assert await find_window(BackendConfig.model_validate(backend), {}) == expected


def test_no_http_client_is_loaded_before_a_server_is_asked():
    code = "import massmem.providers.windows, sys; print('httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("estimated", "reported", "is_short"),
    [
        (7_900, Usage(2_050), True),  # Ollama 0.32 with a window of 4,096
        (7_900, Usage(4_096), True),
        (100_000, Usage(59_999), True),
        (100_000, Usage(60_000), False),
        (5_000, Usage(4_096), False),  # could be the vocabulary; the next turn is longer
        (1_000, Usage(1_300), False),
        (700, Usage(401), False),
        (700, Usage(400), True),
        (50_000, Usage(0), False),
        (50_000, Usage(500, cached=400), False),
    ],
)
def test_only_a_count_far_below_what_was_sent_is_short(estimated: int, reported: Usage, is_short: bool):
    assert is_short_count(estimated, reported) is is_short


@pytest.mark.parametrize(
    ("window", "counts", "is_cut"),
    [
        (4_096, [(7_900, 2_050)], True),
        (32_768, [(7_900, 26)], False),  # Ollama counts what it reads anew
        (32_768, [(7_000, 2_050), (8_000, 2_050), (9_000, 2_050)], False),
        (None, [(7_900, 2_050)], False),
        (None, [(7_000, 2_050), (8_000, 2_060), (9_000, 2_050)], True),
        (None, [(7_000, 26), (8_000, 400), (9_000, 90)], False),
        (None, [(7_900, 26), (7_905, 26), (7_910, 26)], False),
    ],
)
async def test_short_count_is_a_cut_when_the_window_or_other_prompts_say_so(
    stub: Stub, window: int | None, counts: list[tuple[int, int]], is_cut: bool
):
    stub.routes = {"/api/ps": running(window)} if window else {}
    backend = BackendConfig.model_validate({"type": "ollama", "model": "m", "base_url": f"{stub.url}/v1"})
    assert (find_cut(backend, await ask_served_window("ollama", resolve(backend, {})), counts) is not None) is is_cut


@pytest.mark.parametrize(
    ("type_", "setting"),
    [
        ("ollama", "num_ctx in its Modelfile, or OLLAMA_CONTEXT_LENGTH"),
        ("llamacpp", "--ctx-size"),
        ("vllm", "--max-model-len"),
        ("lmstudio", "context length"),
        ("openai", "num_ctx or OLLAMA_CONTEXT_LENGTH"),
    ],
)
def test_the_error_of_a_cut_prompt_names_the_setting(type_: str, setting: str):
    backend = BackendConfig.model_validate({"type": type_, "model": "m", "base_url": NOBODY, "api_key": KEY})
    error = find_cut(backend, None, [(6_900, 2_050), (7_500, 2_050), (7_900, 2_050)])
    assert error is not None
    assert error.exit_code == 2
    assert "read 2,050 of about 7,900 tokens" in error.message
    assert setting in error.hint


async def test_window_of_a_refusal_is_used_by_later_processes(tmp_path: Path) -> None:
    backend = BackendConfig(
        type="openai", model="unheard-of", base_url="https://me:hunter2@nowhere.invalid/v1", api_key=KEY
    )
    endpoint = resolve(backend, {})
    LearntModels(tmp_path).remember_window(endpoint, 8_192)
    assert LearntModels(tmp_path).find_window(endpoint) == 8_192
    assert LearntModels(tmp_path).find_window(replace(endpoint, model="another")) is None
    assert await find_window(backend, {}, LearntModels(tmp_path)) == ContextWindow(8_192, "server")
    file = tmp_path / FILE
    assert "hunter2" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", '{"URL m": 7}', '{"URL m": {"window": 7, "refuses": []}}',
        '{"URL m": {"window": {"tokens": 7, "date": "2020-01-01"}, "refuses": {"tools": "2020-01-01", "schema": 7}}}',
    ],
)  # fmt: skip
def test_old_and_damaged_refusals_do_not_count(tmp_path: Path, content: str) -> None:
    backend = BackendConfig(type="vllm", model="m", base_url=NOBODY)
    (tmp_path / FILE).write_text(content.replace("URL", NOBODY))
    learnt, endpoint = LearntModels(tmp_path), resolve(backend, {})
    assert (learnt.find_window(endpoint), learnt.find_refusals(endpoint)) == (None, {})
    learnt.remember_refusal(endpoint, "tools")
    assert list(LearntModels(tmp_path).find_refusals(endpoint)) == ["tools"]


async def test_windows_learnt_by_several_processes_are_stored_together(tmp_path: Path) -> None:
    endpoint = resolve(BackendConfig(type="vllm", model="m", base_url=NOBODY), {})
    first, second = LearntModels(tmp_path), LearntModels(tmp_path)
    assert (first.find_refusals(endpoint), second.find_refusals(endpoint)) == ({}, {})
    first.remember_refusal(endpoint, "tools")
    second.remember_refusal(endpoint, "schema")
    second.remember_window(endpoint, 8_192)
    third = LearntModels(tmp_path)
    assert (set(third.find_refusals(endpoint)), third.find_window(endpoint)) == ({"tools", "schema"}, 8_192)


async def test_server_on_this_machine_knows_its_window_better_than_a_refusal(stub: Stub, tmp_path: Path) -> None:
    stub.routes = {"/v1/models": list_reply(max_model_len=40_960)}
    backend = BackendConfig(type="vllm", model="m", base_url=f"{stub.url}/v1")
    LearntModels(tmp_path).remember_window(resolve(backend, {}), 8_192)
    assert await find_window(backend, {}, LearntModels(tmp_path)) == ContextWindow(40_960, "server")
