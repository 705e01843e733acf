"""The searches of each provider at the wire: the request as it is sent, and replies as the providers stream them.

The shapes are those of the providers' documentation and of recorded replies; the pages that docs/models.md names.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from massmem.config.models import BackendConfig
from massmem.core.errors import ProviderError
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    Citation,
    NoticeChunk,
    Reply,
    SearchChunk,
    ToolCall,
    ToolSpec,
)
from massmem.providers import Providers
from massmem.providers.anthropic import MessageReader
from massmem.providers.base import ChatProvider
from massmem.providers.chat_reader import ChatReader
from massmem.providers.failures import ErrorContext
from massmem.providers.gemini import GeminiReader
from massmem.providers.marks import Form
from massmem.providers.normaliser import ReplyReader
from massmem.providers.openai import ResponseReader
from tests.support.provider_stub import KEY, Http, Recorded, Stub
from tests.support.replies import ask, collect, collect_reply

ASK = (ChatMessage("system", "Be brief."), ChatMessage("user", "How many people live in Porto?"))
ANSWER = ChatRequest(ASK, "answer", "a", tool_choice="auto")
VOTE = ToolSpec("vote", "Vote.", {"type": "object", "properties": {"choice": {"type": "string"}}})
NEW = ToolSpec("new_answer", "Answer.", {"type": "object", "properties": {"content": {"type": "string"}}})
CITY, NATION = "https://example.com/porto", "https://stats.example.org/census?year=2021"
ALL = {"max_uses": 3, "allowed_domains": ["example.com"], "location": {"country": "PT", "city": "Porto"}}
PLACE = {"type": "approximate", "country": "PT", "city": "Porto"}


@pytest.fixture
async def providers() -> AsyncIterator[Providers]:
    opened = Providers()
    yield opened
    await opened.close()


async def open_at(providers: Providers, stub: Stub, kind: str, search: object = True, **fields: Any) -> ChatProvider:
    base_url = stub.url if kind == "anthropic" else f"{stub.url}/v1"
    base = {"type": kind, "model": "m", "api_key": KEY, "base_url": base_url, "max_retries": 0}
    return await providers.open(BackendConfig.model_validate({**base, "web_search": search, **fields}))


def sse(events: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode() for event in events)


def reply_in(data: bytes, size: int) -> Http:
    """size: bytes of each part that the server sends."""
    return Http(parts=[data[start : start + size] for start in range(0, len(data), size)])


def cut(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


# What is sent

TOOL_FILTERS = {"type": "web_search", "filters": {"allowed_domains": ["example.com"]}, "user_location": PLACE}
NO_USES = {name: value for name, value in ALL.items() if name != "max_uses"}
BLOCKED = {"blocked_domains": ["x.com"]}
FETCH = {
    "type": "web_fetch_20250910",
    "name": "web_fetch",
    "citations": {"enabled": True},
    "max_content_tokens": 20_000,
}
FIND = {"type": "web_search_20250305", "name": "web_search"}
SENT: dict[str, tuple[str, object, str, dict[str, Any]]] = {
    "openai": (
        "openai", ALL, "/v1/responses",
        {"tools": [TOOL_FILTERS], "max_tool_calls": 3, "include": ["web_search_call.action.sources"]},
    ),
    "openai, blocked": (
        "openai", BLOCKED, "/v1/responses",
        {"tools": [{"type": "web_search", "filters": {"blocked_domains": ["x.com"]}}]},
    ),
    "grok": (
        "grok", NO_USES, "/v1/responses",
        {"tools": [{"type": "web_search", "allowed_domains": ["example.com"], "user_location": PLACE}]},
    ),
    "grok, blocked": (
        "grok", BLOCKED, "/v1/responses", {"tools": [{"type": "web_search", "excluded_domains": ["x.com"]}]}
    ),
    "anthropic": (
        "anthropic", ALL, "/v1/messages",
        {
            "tools": [
                {**FIND, "allowed_domains": ["example.com"], "max_uses": 3, "user_location": PLACE},
                {**FETCH, "allowed_domains": ["example.com"], "max_uses": 3},
            ]
        },
    ),
    "anthropic, plain": ("anthropic", True, "/v1/messages", {"tools": [FIND, FETCH]}),
    "gemini": (
        "gemini", True, "/v1/models/m:streamGenerateContent?alt=sse",
        {
            "tools": [{"google_search": {}}],
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": ASK[1].content}]}],
        },
    ),
    "openrouter": (
        "openrouter", ALL, "/v1/chat/completions",
        {
            "tools": [
                {
                    "type": "openrouter:web_search",
                    "parameters": {
                        "engine": "exa", "max_uses": 3, "allowed_domains": ["example.com"], "user_location": PLACE
                    },
                }
            ]
        },
    ),
    "openrouter, plain": (
        "openrouter", True, "/v1/chat/completions", {"tools": [{"type": "openrouter:web_search"}]}
    ),
    "perplexity": (
        "perplexity", NO_USES, "/v1/chat/completions",
        {
            "search_domain_filter": ["example.com"],
            "web_search_options": {"user_location": {"country": "PT", "city": "Porto"}},
        },
    ),
    "perplexity, blocked": (
        "perplexity", BLOCKED, "/v1/chat/completions", {"search_domain_filter": ["-x.com"]}
    ),
    "perplexity without search": ("perplexity", False, "/v1/chat/completions", {"disable_search": True}),
}  # fmt: skip


async def send(providers: Providers, stub: Stub, kind: str, search: object, request: ChatRequest) -> Recorded:
    stub.replies = [Http(400, {}, [b'{"error": {"message": "stop here"}}'])]
    provider = await open_at(providers, stub, kind, search)
    with pytest.raises(Exception, match="stop here"):
        await ask(provider, request)
    return stub.requests[-1]


@pytest.mark.parametrize("name", SENT)
async def test_search_is_sent_in_the_words_of_the_provider(providers: Providers, stub: Stub, name: str) -> None:
    kind, search, path, fields = SENT[name]
    sent = await send(providers, stub, kind, search, ANSWER)
    assert sent.path == path
    assert {field: sent.body.get(field) for field in fields} == fields


@pytest.mark.parametrize("kind", ["openai", "grok", "anthropic", "openrouter", "gemini"])
async def test_who_votes_may_search_and_must_still_vote(providers: Providers, stub: Stub, kind: str) -> None:
    body = (
        await send(providers, stub, kind, True, replace(ANSWER, purpose="vote", tools=(VOTE,), tool_choice="required"))
    ).body
    names = json.dumps(body["tools"])
    assert "search" in names and '"vote"' in names
    if kind == "gemini":
        calling = {"functionCallingConfig": {"mode": "ANY"}, "includeServerSideToolInvocations": True}
        assert body["toolConfig"] == calling
    else:
        assert body["tool_choice"] == ({"type": "auto"} if kind == "anthropic" else "required")


@pytest.mark.parametrize("kind", ["openai", "grok", "anthropic", "openrouter", "gemini"])
@pytest.mark.parametrize("purpose", ["present", "summary", "extract"])
async def test_only_answers_and_votes_search(providers: Providers, stub: Stub, kind: str, purpose: Any) -> None:
    body = (await send(providers, stub, kind, True, replace(ANSWER, purpose=purpose))).body
    assert "search" not in json.dumps(body)


async def test_tools_that_are_named_for_the_cache_do_not_close_the_search(providers: Providers, stub: Stub) -> None:
    body = (await send(providers, stub, "openai", True, replace(ANSWER, tools=(VOTE,), tool_choice="none"))).body
    assert body["tool_choice"] == {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    # Elsewhere the choice says that the work with tools has ended.
    body = (await send(providers, stub, "grok", True, replace(ANSWER, tools=(VOTE,), tool_choice="none"))).body
    assert "web_search" not in json.dumps(body)


async def test_old_model_of_gemini_searches_where_it_has_no_other_tools(providers: Providers, stub: Stub) -> None:
    stub.replies = [Http(400, {}, [b'{"error": {"message": "stop here"}}'])]
    provider = await open_at(providers, stub, "gemini", model="gemini-2.5-flash")
    for request in (ANSWER, replace(ANSWER, tools=(VOTE,)), replace(ANSWER, schema={"type": "object"})):
        with pytest.raises(Exception, match="stop here"):
            await ask(provider, request)
    assert ["google_search" in json.dumps(sent.body) for sent in stub.requests] == [True, False, False]
    assert stub.requests[0].headers["x-goog-api-key"] == KEY
    assert "authorization" not in stub.requests[0].headers


async def test_perplexity_searches_unless_told_not_to(providers: Providers, stub: Stub) -> None:
    provider = await providers.open(
        BackendConfig.model_validate({"type": "perplexity", "api_key": KEY, "base_url": stub.url, "max_retries": 0})
    )
    stub.replies = [reply_in(sse(perplexity_events(9)), 100)]
    assert len((await ask(provider, ANSWER)).citations) == 2
    await ask(provider, replace(ANSWER, purpose="present"))
    assert [sent.body.get("disable_search") for sent in stub.requests] == [None, True]


# What comes back


@dataclass(frozen=True)
class Expected:
    text: str
    citations: Sequence[Citation]
    queries: Sequence[str] = ("porto population",)
    searches: int = 1


def openai_events(size: int) -> list[dict[str, Any]]:
    link = f"([example.com]({CITY}?utm_source=openai))"
    twice = f"([example.com]({CITY}?utm_source=openai), [stats.example.org]({NATION}&utm_source=openai))"
    first, second = (
        f"Porto has 231,800 people. {link}",
        f" Its region [has more]({NATION}&utm_source=openai), {twice} see [1, 2] and [notes](https://own.example/x).",
    )
    place: dict[str, Any] = {"item_id": "msg", "output_index": 2, "content_index": 0}
    call = {"id": "ws", "type": "web_search_call", "status": "in_progress"}
    action = {"type": "search", "query": "porto population", "sources": [{"type": "url", "url": CITY}]}
    page = {
        "id": "ws2",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "open_page", "url": NATION},
    }
    notes = [
        {
            "type": "url_citation",
            "url": f"{CITY}?utm_source=openai",
            "title": "Porto",
            "start_index": 26,
            "end_index": 80,
        },
        {"type": "file_citation", "file_id": "f", "filename": "a.pdf", "index": 3},
        {
            "type": "container_file_citation",
            "container_id": "c",
            "file_id": "f",
            "filename": "b",
            "start_index": 0,
            "end_index": 2,
        },
        {
            "type": "url_citation",
            "url": f"{NATION}&utm_source=openai",
            "title": "Census",
            "start_index": 90,
            "end_index": 99,
        },
    ]
    added = [{"type": "response.output_text.annotation.added", **place, "annotation": note} for note in notes]
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": call},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws"},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {**call, "status": "completed", "action": action},
        },
        {"type": "response.output_item.done", "output_index": 1, "item": page},
    ]
    events += [{"type": "response.output_text.delta", **place, "delta": delta} for delta in cut(first, size)]
    events.append(added[0])
    events += [{"type": "response.output_text.delta", **place, "delta": delta} for delta in cut(second, size)]
    events += added[1:]
    content = [{"type": "output_text", "text": first + second, "annotations": notes}]
    events.append({"type": "response.output_text.done", **place, "text": first + second})
    message = {"id": "msg", "type": "message", "content": content}
    output = [{**call, "status": "completed", "action": action}, page, message]
    events.append({"type": "response.output_item.done", "output_index": 2, "item": message})
    usage = {"input_tokens": 20, "output_tokens": 7}
    return [
        *events,
        {"type": "response.completed", "response": {"status": "completed", "output": output, "usage": usage}},
    ]


def xai_events(size: int) -> list[dict[str, Any]]:
    text = f"Porto has 231,800 people.[[1]]({CITY})[[2]]({NATION})"
    place: dict[str, Any] = {"item_id": "msg", "output_index": 1, "content_index": 0}
    call = {"id": "ws", "type": "web_search_call", "name": "web_search", "call_id": "", "status": "completed"}
    call["arguments"] = '{"query":"porto population","num_results":5}'
    notes = [
        {"type": "url_citation", "url": url, "title": "1", "start_index": 25, "end_index": 60} for url in (CITY, NATION)
    ]
    usage = {"input_tokens": 20, "output_tokens": 7, "num_server_side_tools_used": 1, "cost_in_usd_ticks": 66_000_000}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": call},
        {"type": "response.output_item.done", "output_index": 0, "item": call},
        *({"type": "response.output_text.delta", **place, "delta": delta} for delta in cut(text, size)),
        *({"type": "response.output_text.annotation.added", **place, "annotation": note} for note in notes),
        {"type": "response.completed", "response": {"status": "completed", "output": [call], "usage": usage}},
    ]


def anthropic_blocks(size: int) -> list[dict[str, Any]]:
    result = {
        "type": "web_search_result",
        "url": CITY,
        "title": "Porto",
        "encrypted_content": "sealed",
        "page_age": None,
    }
    page = {
        "type": "document",
        "title": "Census",
        "source": {"type": "text", "media_type": "text/plain", "data": "..."},
    }
    fetched = {"type": "web_fetch_result", "url": NATION, "content": page, "retrieved_at": "2026-01-01T00:00:00Z"}
    citation = {"type": "web_search_result_location", "url": CITY, "title": "Porto", "encrypted_index": "i"}
    return [
        *block(
            0,
            {"type": "server_tool_use", "id": "st1", "name": "web_search", "input": {}},
            written('{"query": "porto population"}', size),
        ),
        *block(1, {"type": "web_search_tool_result", "tool_use_id": "st1", "content": [result]}),
        *block(
            2,
            {"type": "server_tool_use", "id": "st2", "name": "web_fetch", "input": {}},
            written(json.dumps({"url": NATION}), size),
        ),
        *block(3, {"type": "web_fetch_tool_result", "tool_use_id": "st2", "content": fetched}),
        *block(4, {"type": "text", "text": ""}, said_in("Found: ", size)),
        *block(
            5,
            {"type": "text", "text": "", "citations": []},
            [
                {"type": "citations_delta", "citation": {**citation, "cited_text": "231,800 people"}},
                {"type": "citations_delta", "citation": {**citation, "cited_text": "in the city"}},
                *said_in("Porto has 231,800 people.", size),
            ],
        ),
        *block(
            6,
            {"type": "text", "text": ""},
            [
                *said_in(" The census agrees.", size),
                {
                    "type": "citations_delta",
                    "citation": {
                        "type": "char_location",
                        "document_title": "Census",
                        "document_index": 0,
                        "cited_text": "all",
                    },
                },
                {
                    "type": "citations_delta",
                    "citation": {
                        "type": "page_location",
                        "document_title": "a.pdf",
                        "document_index": 1,
                        "cited_text": "?",
                    },
                },
            ],
        ),
    ]


def block(index: int, start: dict[str, Any], deltas: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def written(text: str, size: int) -> list[dict[str, Any]]:
    return [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *cut(text, size))]


def said_in(text: str, size: int) -> list[dict[str, Any]]:
    return [{"type": "text_delta", "text": piece} for piece in cut(text, size)]


START = {
    "type": "message_start",
    "message": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "usage": {"input_tokens": 20, "output_tokens": 1},
    },
}


def end(reason: str, searches: int = 1) -> list[dict[str, Any]]:
    usage = {"output_tokens": 7, "server_tool_use": {"web_search_requests": searches, "web_fetch_requests": 1}}
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


def anthropic_events(size: int) -> list[dict[str, Any]]:
    return [START, *anthropic_blocks(size), *end("end_turn")]


def gemini_events(size: int) -> list[dict[str, Any]]:
    text = "São João é do Porto. Porto has 231,800 people. Enough."
    first, second = len("São João é do Porto.".encode()), len("São João é do Porto. Porto has 231,800 people.".encode())
    grounding = {
        "webSearchQueries": ["porto population", ""],
        "groundingChunks": [
            {"web": {"uri": CITY, "title": "example.com"}},
            {"web": {"uri": NATION, "title": "example.org"}},
            {"web": {"title": "nobody"}},
        ],
        "groundingSupports": [
            {"segment": {"endIndex": first, "text": "..."}, "groundingChunkIndices": [1]},
            {"segment": {"startIndex": first + 1, "endIndex": second}, "groundingChunkIndices": [0, 1, 7]},
            {"segment": {"startIndex": 5, "endIndex": 100_000}, "groundingChunkIndices": [0]},
        ],
    }
    usage = {"promptTokenCount": 12, "toolUsePromptTokenCount": 8, "candidatesTokenCount": 4, "thoughtsTokenCount": 3}
    pieces = [{"candidates": [{"content": {"role": "model", "parts": [{"text": piece}]}}]} for piece in cut(text, size)]
    last = {
        "content": {"role": "model", "parts": [{"text": ""}]},
        "finishReason": "STOP",
        "groundingMetadata": grounding,
    }
    return [*pieces, {"candidates": [last], "usageMetadata": usage}]


def openrouter_events(size: int) -> list[dict[str, Any]]:
    text = f"Porto has 231,800 people. ([example.com]({CITY})) The region has more."
    notes = [
        {
            "type": "url_citation",
            "url_citation": {"url": CITY, "title": "Porto", "content": "231,800", "start_index": 26, "end_index": 70},
        },
        {
            "type": "url_citation",
            "url_citation": {"url": NATION, "title": "Census", "start_index": len(text) - 20, "end_index": len(text)},
        },
    ]
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "cost": 0.0123, "server_tool_use": {"web_search_requests": 1}}
    return [
        *({"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in cut(text, size)),
        {"choices": [{"index": 0, "delta": {"annotations": notes}}]},
        {"choices": [{"index": 0, "delta": {"annotations": notes}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    ]


def perplexity_events(size: int) -> list[dict[str, Any]]:
    text = "**Porto** has 231,800 people.[3][1] More live around it[1][9].\n"
    pages = [
        {"url": CITY, "title": "Porto", "snippet": "231,800"},
        {"url": "https://u.example", "title": "U"},
        {"url": NATION, "title": "Census"},
    ]
    beside = {"citations": [page["url"] for page in pages], "search_results": pages}
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "num_search_queries": 1, "cost": {"total_cost": 0.0061}}
    return [
        *(
            {**beside, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": piece}}]}
            for piece in cut(text, size)
        ),
        {
            **beside,
            "object": "chat.completion.done",
            "usage": usage,
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}],
        },
    ]


PORTO = "Porto has 231,800 people."
STREAMS: dict[str, tuple[Any, Expected]] = {
    "openai": (
        openai_events,
        Expected(
            f"{PORTO} [1] Its region has more [2], [1][2] see [1, 2] and [notes](https://own.example/x).",
            [Citation(CITY, "Porto"), Citation(NATION, "Census")],
            ["porto population", NATION],
        ),
    ),
    "grok": (xai_events, Expected(f"{PORTO}[1][2]", [Citation(CITY, "1"), Citation(NATION, "1")])),
    "anthropic": (
        anthropic_events,
        Expected(
            f"Found: {PORTO}[1] The census agrees.[2]",
            [
                Citation(CITY, "Porto", "231,800 people", start=7, end=32),
                Citation(CITY, "Porto", "in the city", start=7, end=32),
                Citation(NATION, "Census", "all", start=35, end=54),
            ],
            ["porto population", NATION],
        ),
    ),
    "gemini": (
        gemini_events,
        Expected(
            f"São João é do Porto.[1] {PORTO}[2][1] Enough.",
            [
                Citation(NATION, "example.org", start=0, end=20),
                Citation(NATION, "example.org", start=24, end=49),
                Citation(CITY, "example.com", start=24, end=49),
            ],
        ),
    ),
    "openrouter": (
        openrouter_events,
        Expected(
            f"{PORTO} [1] The region has more.[2]",
            [Citation(CITY, "Porto", "231,800"), Citation(NATION, "Census", start=30, end=50)],
            [],
        ),
    ),
    "perplexity": (
        perplexity_events,
        Expected(
            "**Porto** has 231,800 people.[1][2] More live around it [2].\n",
            [Citation(NATION, "Census"), Citation(CITY, "Porto", "231,800")],
            [],
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("delta", "part"), [(1, 1_000_000), (4, 7), (1_000, 1_000_000), (17, 1)])
@pytest.mark.parametrize("kind", STREAMS)
async def test_sources_become_numbers_of_the_text(
    providers: Providers, stub: Stub, kind: str, delta: int, part: int
) -> None:
    events, expected = STREAMS[kind]
    stub.replies = [reply_in(sse(events(delta)), part)]
    chunks = await collect(await open_at(providers, stub, kind), ANSWER)
    reply = collect_reply(chunks)
    assert reply.text == expected.text
    assert sorted(reply.citations, key=str) == sorted(expected.citations, key=str)
    assert list(dict.fromkeys(c.url for c in reply.citations)) == list(dict.fromkeys(c.url for c in expected.citations))
    assert [chunk.query for chunk in chunks if isinstance(chunk, SearchChunk)] == list(expected.queries)
    assert (reply.usage.prompt, reply.usage.completion) == (20, 7)
    assert reply.usage.searches == expected.searches
    for citation in reply.citations:
        if citation.start is not None and citation.end is not None:
            assert reply.text[citation.start : citation.end].endswith(".")


async def say(
    providers: Providers, stub: Stub, kind: str, events: Sequence[Mapping[str, Any]], request: ChatRequest = ANSWER
) -> tuple[Reply, list[str]]:
    """Return the reply, and what the user is told."""
    stub.replies = [reply_in(sse(events), 100)]
    chunks = await collect(await open_at(providers, stub, kind), request)
    return collect_reply(chunks), [chunk.text for chunk in chunks if isinstance(chunk, NoticeChunk)]


async def test_failed_search_is_said_and_the_answer_goes_on(providers: Providers, stub: Stub) -> None:
    failed = {"id": "ws", "type": "web_search_call", "status": "failed", "action": {"type": "search", "query": "porto"}}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "output_index": 0, "item": failed},
        {"type": "response.output_text.delta", "item_id": "msg", "delta": "About 230,000."},
        {"type": "response.completed", "response": {"status": "completed", "output": [failed]}},
    ]
    reply, notices = await say(providers, stub, "openai", events)
    assert (reply.text, notices) == ("About 230,000.", ["a search of the web failed: porto; it goes on"])
    errors = [
        {"type": "web_search_tool_result_error", "error_code": code} for code in ("unavailable", "max_uses_exceeded")
    ]
    results = [
        block(n, {"type": "web_search_tool_result", "tool_use_id": "s", "content": e}) for n, e in enumerate(errors)
    ]
    lost = {"type": "web_fetch_tool_result_error", "error_code": "url_not_accessible"}
    results.append(block(3, {"type": "web_fetch_tool_result", "tool_use_id": "s", "content": lost}))
    text = block(4, {"type": "text", "text": ""}, said_in("About 230,000.", 5))
    reply, notices = await say(
        providers,
        stub,
        "anthropic",
        [START, *(event for events in results for event in events), *text, *end("end_turn", 0)],
    )
    assert reply.text == "About 230,000."
    assert notices == [
        "a search of the web failed (unavailable); it goes on",
        "it has made all searches that max_uses allows, and goes on without more",
        "a page could not be opened (url_not_accessible); it goes on",
    ]


async def test_source_without_address_is_left_out_and_said_once(providers: Providers, stub: Stub) -> None:
    note = {"type": "url_citation", "url_citation": {"title": "Nobody"}}
    events = [
        {"choices": [{"index": 0, "delta": {"content": "Yes.", "annotations": [note, note]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    reply, notices = await say(providers, stub, "openrouter", events)
    assert (reply.text, reply.citations) == ("Yes.", [])
    assert notices == ["a source of its answer has no address, and is left out"]


async def test_numbers_without_a_source_go_with_a_notice(providers: Providers, stub: Stub) -> None:
    _, notices = await say(providers, stub, "perplexity", perplexity_events(5))
    assert notices == ["a number in its answer points to no source, and is removed"]


async def test_old_model_of_gemini_says_once_that_it_votes_without_a_search(providers: Providers, stub: Stub) -> None:
    stub.replies = [reply_in(sse(gemini_events(50)), 100)]
    provider = await open_at(providers, stub, "gemini", model="gemini-2.5-flash")
    vote = replace(ANSWER, purpose="vote", tools=(VOTE,))
    chunks = [*await collect(provider, vote), *await collect(provider, vote)]
    notices = [chunk.text for chunk in chunks if isinstance(chunk, NoticeChunk) and "search beside" in chunk.text]
    assert notices == ["gemini-2.5-flash does not search beside other tools: it goes on without Google Search"]


async def test_improved_answer_that_a_voter_submits_has_its_sources(providers: Providers, stub: Stub) -> None:
    arguments = json.dumps(
        {"content": f"231,800 ([example.com]({CITY}?utm_source=openai)); [own](https://own.example)."}
    )
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "new_answer", "arguments": arguments}
    action = {"type": "search", "query": "porto", "sources": [{"type": "url", "url": CITY}]}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "item": {"id": "w", "type": "web_search_call", "action": action}},
        {"type": "response.output_item.done", "item": call},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]
    request = replace(ANSWER, purpose="vote", tools=(VOTE, NEW), tool_choice="required")
    reply, _ = await say(providers, stub, "openai", events, request)
    assert json.loads(reply.tool_calls[0].arguments) == {"content": "231,800 [1]; [own](https://own.example)."}
    assert reply.citations == [Citation(CITY)]
    # What was searched goes back with the call, in the order in which it came, without the list of pages.
    again = ChatMessage("assistant", "", tuple(reply.tool_calls)), ChatMessage("tool", "no", tool_call_id="c")
    await ask(await open_at(providers, stub, "openai"), replace(request, messages=(*ASK, *again)))
    items = stub.requests[-1].body["input"][2:]
    assert [item["type"] for item in items] == ["web_search_call", "function_call", "function_call_output"]
    assert items[0]["action"] == {"type": "search", "query": "porto"}


async def test_pause_of_anthropic_is_gone_on_from_with_what_it_wants_back(providers: Providers, stub: Stub) -> None:
    blocks = anthropic_blocks(1_000)
    searched, rest = blocks[:6], blocks[6:]
    stub.replies = [
        reply_in(sse([START, *searched, *end("pause_turn")]), 50),
        reply_in(sse([START, *rest, *end("end_turn", 2)]), 50),
    ]
    reply = await ask(await open_at(providers, stub, "anthropic"), ANSWER)
    _, expected = STREAMS["anthropic"]
    assert (reply.text, reply.finish) == (expected.text, "stop")
    assert (reply.usage.requests, reply.usage.searches, reply.usage.prompt, reply.usage.completion) == (2, 3, 40, 14)
    *before, last = stub.requests[1].body["messages"]
    assert before == stub.requests[0].body["messages"]
    assert last["role"] == "assistant"
    assert [part["type"] for part in last["content"]] == ["server_tool_use", "web_search_tool_result"]
    assert last["content"][0]["input"] == {"query": "porto population"}
    assert last["content"][1]["content"][0]["encrypted_content"] == "sealed"


async def test_searches_before_a_call_go_back_to_anthropic_with_it(providers: Providers, stub: Stub) -> None:
    call = block(7, {"type": "tool_use", "id": "t1", "name": "vote", "input": {}}, written('{"choice": "A"}', 3))
    tools = replace(ANSWER, purpose="vote", tools=(VOTE,))
    reply, _ = await say(providers, stub, "anthropic", [START, *anthropic_blocks(9), *call, *end("tool_use")], tools)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("vote", '{"choice": "A"}')]
    assert reply.text == "Found: Porto has 231,800 people. The census agrees."  # beside a vote nothing is numbered
    calls = tuple(ToolCall(call.id, call.name, call.arguments, call.state) for call in reply.tool_calls)
    result = ChatMessage("tool", "there is no A", tool_call_id=calls[0].id)
    again = replace(tools, messages=(*ASK, ChatMessage("assistant", reply.text, calls), result))
    stub.replies = [reply_in(sse([START, *block(0, {"type": "text", "text": "B"}), *end("end_turn", 0)]), 100)]
    await ask(await open_at(providers, stub, "anthropic"), again)
    content = stub.requests[-1].body["messages"][1]["content"]
    kinds = ["server_tool_use", "web_search_tool_result", "server_tool_use", "web_fetch_tool_result"]
    assert [part["type"] for part in content] == [*kinds, "text", "text", "text", "tool_use"]
    assert content[5]["citations"][0]["encrypted_index"] == "i"


async def test_calls_of_gemini_go_back_with_their_signature(providers: Providers, stub: Stub) -> None:
    parts = [
        {
            "toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["porto"]}, "id": "s1"},
            "thoughtSignature": "a",
        },
        {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {}, "id": "s1"}, "thoughtSignature": "b"},
        {"functionCall": {"name": "vote", "args": {"choice": "A"}, "id": "c1"}, "thoughtSignature": "c"},
    ]
    events = [{"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}]
    request = replace(ANSWER, purpose="vote", tools=(VOTE,), tool_choice="required")
    reply, _ = await say(providers, stub, "gemini", events, request)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("vote", '{"choice": "A"}')]
    result = ChatMessage("tool", "there is no A", tool_call_id=reply.tool_calls[0].id)
    again = replace(request, messages=(*ASK, ChatMessage("assistant", "", tuple(reply.tool_calls)), result))
    await ask(await open_at(providers, stub, "gemini"), again)
    asked, answered = stub.requests[-1].body["contents"][1:]
    assert asked["role"] == "model"
    assert [part.get("thoughtSignature") for part in asked["parts"]] == ["a", "b", "c"]
    id_ = asked["parts"][2]["functionCall"]["id"]
    assert answered["parts"] == [
        {"functionResponse": {"id": id_, "name": "vote", "response": {"result": "there is no A"}}}
    ]


async def test_whole_reply_in_place_of_a_stream_has_its_sources(providers: Providers, stub: Stub) -> None:
    message = {
        "content": f"231,800 ([example.com]({CITY}))",
        "annotations": [{"type": "url_citation", "url_citation": {"url": CITY}}],
    }
    reply, _ = await say(providers, stub, "openrouter", [{"choices": [{"message": message, "finish_reason": "stop"}]}])
    assert (reply.text, reply.citations) == ("231,800 [1]", [Citation(CITY)])
    content = [part["content_block"] for part in anthropic_blocks(1) if part["type"] == "content_block_start"][:4]
    citation = {"type": "web_search_result_location", "url": CITY, "title": "Porto", "cited_text": "231,800"}
    content = [content[1], {"type": "text", "text": "231,800", "citations": [citation]}]
    whole = {
        "type": "message",
        "content": content,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    reply, _ = await say(providers, stub, "anthropic", [whole])
    assert (reply.text, reply.citations) == ("231,800 [1]", [Citation(CITY, "Porto", "231,800", start=0, end=7)])


ODD: tuple[Any, ...] = (None, True, -1, 1e400, "\ud83d[", [], [None, 1, {}], {}, {"url": 1, "type": []})


def replace_each(value: Any, odd: Any) -> Iterator[Any]:
    """Yield the value with one of its parts replaced, for each part."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {**value, key: odd}
            yield from ({**value, key: changed} for changed in replace_each(inner, odd))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from ([*value[:place], changed, *value[place + 1 :]] for changed in (odd, *replace_each(inner, odd)))


def make_reader(kind: str) -> ReplyReader:
    context = ErrorContext(kind, "m", "")
    readers = {"openai": ResponseReader, "grok": ResponseReader, "anthropic": MessageReader, "gemini": GeminiReader}
    reader = readers.get(kind, ChatReader)(ANSWER, context)
    forms: Mapping[str, Form] = {
        "anthropic": "parts",
        "perplexity": "numbers",
        "gemini": "offsets",
        "openrouter": "offsets",
    }
    reader.cited.form = forms.get(kind, "offsets" if kind == "openrouter" else "links")
    if isinstance(reader, MessageReader):
        reader.is_searching = True
    return reader


@pytest.mark.parametrize("kind", STREAMS)
def test_odd_part_costs_itself_and_never_the_whole(kind: str) -> None:
    events = STREAMS[kind][0](1_000)
    for place, event in enumerate(events):
        for odd in ODD:
            for changed in replace_each(event, odd):
                reader = make_reader(kind)
                with suppress(ProviderError):
                    for sent in (*events[:place], changed, *events[place + 1 :]):
                        list(reader.feed(sent))
                    list(reader.close())
