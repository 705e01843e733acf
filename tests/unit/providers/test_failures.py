"""Statuses, codes and words that servers use, and what they mean here."""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core import errors
from massmem.core.errors import ToolsRefused
from massmem.providers.failures import (
    REFUSALS,
    ErrorContext,
    ErrorReply,
    Refusal,
    clean_message,
    find_failure,
    find_refusal,
    find_wrong_address,
    parse_error_body,
    parse_retry_after,
    read_overflow,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
CONTEXT = ErrorContext("openai", "m", "sk-test-0123456789")

OVERFLOWS, OTHER_LIMITS = Path(__file__).with_name("overflows.txt").read_text().split("\n=== other limits\n")
NAMES_NO_PROMPT = ("Zai", "Kimi2")
"""They may say that of a minute's tokens too: with status 429 they count as a rate limit."""


@pytest.mark.parametrize("line", OVERFLOWS.split("\n\n", 1)[1].splitlines())
def test_each_way_of_saying_context_too_long(line: str) -> None:
    origin, text = line.split(": ", 1)
    *numbers, name = origin.split(" ", 2)
    prompt, window = (None if number == "-" else int(number) for number in numbers)
    for status in (400, 403, 413, 422, 429, 500, 200):
        if status == 429 and name in NAMES_NO_PROMPT:
            continue
        error = parse_error_body(status, {"error": {"message": text}}).error(CONTEXT)
        assert isinstance(error, errors.ContextOverflow), status
        assert (error.prompt_tokens, error.window) == (prompt, window)


@pytest.mark.parametrize("text", [*OTHER_LIMITS.splitlines(), ""])
def test_other_complaints_are_no_overflow(text: str) -> None:
    assert read_overflow(text, may_be_short=True) is None


@pytest.mark.parametrize(
    "text", ["The request has 9000 tokens, which is more than the model can take.", "tokens in request more than max"]
)
def test_tokens_of_what_need_not_be_said_in_a_bad_request(text: str) -> None:
    assert type(parse_error_body(400, {"error": {"message": text}}).error(CONTEXT)) is errors.ContextOverflow


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "Invalid 'messages': array too long. Expected an array with maximum length 2048.",
        "Your token is longer than allowed: invalid token",
        "The thinking budget exceeds the limit of 24576 tokens",
        "temperature must be at most 2",
    ],
)
def test_refusal_for_another_reason_is_no_overflow(text: str) -> None:
    assert type(parse_error_body(400, {"error": {"message": text}}).error(CONTEXT)) is errors.RequestRejected


def test_llama_cpp_names_the_numbers_as_fields() -> None:
    body = {
        "error": {
            "code": 400,
            "message": "request (10031 tokens) exceeds the available context size (1024 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 10031,
            "n_ctx": 1024,
        }
    }
    error = parse_error_body(400, body).error(CONTEXT)
    assert isinstance(error, errors.ContextOverflow)
    assert (error.prompt_tokens, error.window) == (10031, 1024)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, errors.RequestRejected),
        (400, errors.RequestRejected),
        (401, errors.AuthenticationError),
        (402, errors.RequestRejected),
        (403, errors.AuthenticationError),
        (404, errors.ModelNotFound),
        (408, errors.ProviderUnavailable),
        (409, errors.ProviderUnavailable),
        (413, errors.ContextOverflow),
        (415, errors.RequestRejected),
        (422, errors.RequestRejected),
        (429, errors.RateLimited),
        (500, errors.ProviderUnavailable),
        (502, errors.ProviderUnavailable),
        (503, errors.ProviderUnavailable),
        (504, errors.ProviderUnavailable),
        (529, errors.ProviderUnavailable),
    ],
)
def test_statuses(status: int, kind: type[errors.ProviderError]) -> None:
    error = parse_error_body(status, {"error": {"message": "no", "type": "invalid_request_error"}}).error(CONTEXT)
    assert type(error) is kind
    assert f"HTTP {status}" in error.message


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "context_length_exceeded", errors.ContextOverflow),
        (403, "context_window_exceeded", errors.ContextOverflow),
        (400, "model_max_prompt_tokens_exceeded", errors.ContextOverflow),
        (400, "exceed_context_size_error", errors.ContextOverflow),
        (413, "request_too_large", errors.ContextOverflow),
        (400, "invalid_prompt", errors.RequestRejected),
        (200, "1261", errors.ContextOverflow),
        (429, "insufficient_quota", errors.RequestRejected),
        (429, "rate_limit_exceeded", errors.RateLimited),
        (400, "content_filter", errors.ContentRefused),
        (403, "model_not_found", errors.ModelNotFound),
        (400, "invalid_api_key", errors.AuthenticationError),
        (200, "overloaded_error", errors.ProviderUnavailable),
        (200, "rate_limit_error", errors.RateLimited),
        (200, "invalid_request_error", errors.RequestRejected),
        (200, "502", errors.ProviderUnavailable),
        (200, "429", errors.RateLimited),
        (200, "never_heard_of", errors.ProviderUnavailable),
    ],
)
def test_codes_say_more_than_the_status(status: int, code: str, kind: type[errors.ProviderError]) -> None:
    assert type(parse_error_body(status, {"error": {"message": "no", "code": code}}).error(CONTEXT)) is kind


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "m", "code": "c"}}, "m"),
        ({"error": "m", "code": "c"}, "m"),
        ([{"error": {"message": "m", "status": "INVALID_ARGUMENT", "code": 400}}], "m"),
        ({"message": "m", "type": "t"}, "m"),
        ({"detail": "m"}, "m"),
        ("m", "m"),
        ("<html><body>502</body></html>", "an HTML page instead of an API's reply"),
        (
            "<!doctype html><title>502 Bad Gateway</title><p>nginx",
            "an HTML page instead of an API's reply: 502 Bad Gateway",
        ),
        ("<?xml version='1.0'?><Error><Code>Denied</Code><Message>m</Message></Error>", "m"),
        ("<400> InternalError.Algo: m", "<400> InternalError.Algo: m"),
        (None, "Bad Gateway"),
        ({}, "Bad Gateway"),
        ([], "Bad Gateway"),
        ({"error": {"code": "weird"}}, "Bad Gateway"),
        ({"error": {"message": ["m"]}}, "m"),
        ({"error": {"message": {"error": "m"}, "type": "budget_exceeded"}}, "m"),
        ({"error": {"error": {"message": "m"}}}, "m"),
        ({"message": '{"error": {"message": "m"}}'}, "m"),
        ('{"error": "m"}', "m"),
        ({"result": None, "success": False, "errors": [{"code": 5007, "message": "m"}], "messages": []}, "m"),
        ({"errors": ["m", "n"]}, "m; n"),
        ({"base_resp": {"status_code": 1008, "status_msg": "m"}}, "m"),
        ({"error_msg": "m", "error_code": 18}, "m"),
        ({"detail": [{"loc": ["body", "model"], "msg": "m", "input": {"message": "a secret"}}]}, "body.model: m"),
        (
            {"error": {"message": "Bad", "metadata": {"raw": '{"error":{"message":"m"}}', "provider_name": "P"}}},
            "Bad; m",
        ),
        ({"error": {"message": "Bad", "metadata": {"raw": "Bad m"}}}, "Bad m"),
        ({"error": {"message": "m", "innererror": {"code": "Policy", "message": "n"}}}, "m; n"),
        ({"error": {"message": "m", "details": [{"@type": "Help", "links": [{"description": "Read"}]}]}}, "m"),
        ({"fault": {"faultstring": "m", "detail": {"errorcode": "p"}}}, "m"),
        ({"type": "about:blank", "title": "Not so", "status": 400, "detail": "m"}, "m"),
        ({"title": "Not so", "status": 400}, "Not so"),
        ({"output": {"header": {"message": "m", "code": 7}}}, "m"),
    ],
)
def test_bodies_of_every_shape_are_read(body: object, text: str) -> None:
    assert parse_error_body(500, body, "Bad Gateway").text == text


def test_a_server_without_words_is_quoted_by_its_code() -> None:
    assert "weird_thing" in parse_error_body(400, {"error": {"code": "weird_thing"}}).error(CONTEXT).message
    assert "no reason given" in parse_error_body(500, {}).error(CONTEXT).message


ERRORS: list[tuple[dict[str, Any], type[errors.ProviderError] | None]] = [
    ({"code": 50505, "message": "Model service overloaded.", "data": None}, errors.ProviderUnavailable),
    ({"code": "InvalidParameter", "message": "no", "request_id": "r"}, errors.RequestRejected),
    ({"code": "500", "msg": "no", "success": False}, errors.ProviderUnavailable),
    ({"object": "error", "message": "The model `m` does not exist", "code": 40401}, errors.ModelNotFound),
    ({"type": "error", "error": {"type": "permission_error", "message": "no"}}, errors.AuthenticationError),
    ({"choices": [], "error": {"message": "no", "code": 502}}, errors.ProviderUnavailable),
    ({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, errors.RateLimited),
    (
        {"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
        errors.RequestRejected,
    ),
    ({"id": "i", "error": "llama runner process has terminated"}, errors.ProviderUnavailable),
    ({"error": ["invalid key"]}, errors.RequestRejected),
    ({"errors": [{"message": "content filter"}]}, errors.ContentRefused),
    ({"code": 401, "msg": "no"}, errors.AuthenticationError),
    ({"message": "warming up"}, None),
    ({"error": {"code": 1261}}, errors.ContextOverflow),
    ({"error": True}, errors.ProviderUnavailable),
    ({"error": {"message": "", "code": 0}, "choices": [{}]}, None),
    ({"error": {}, "code": 0, "base_resp": {"status_code": 0, "status_msg": ""}, "choices": [{}]}, None),
    ({"code": 200, "msg": "success", "data": {"choices": []}}, None),
    ({"type": "message_start", "message": {"role": "assistant"}}, None),
    ({"id": "i", "usage": {}}, None),
    ({"type": "ping"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("event", "kind"), ERRORS)
def test_errors_with_status_200(event: dict[str, Any], kind: type[errors.ProviderError] | None) -> None:
    reply = find_failure(event)
    assert (reply and reply.kind) == kind


RETRY_INFO = [
    {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerMinutePerModel"}]},
    {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"},
]


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ([{"error": {"code": 429, "message": "Resource exhausted.", "details": RETRY_INFO}}], 2.5),
        ({"error": {"message": "You exceeded your current quota. Please retry in 2.660853464s."}}, 2.660853464),
        ({"error": "Model m is currently loading", "estimated_time": 2.5}, 2.5),
        ({"error": {"message": "slow", "retry_after": "3"}}, 3),
        ({"error": {"message": "slow", "metadata": {"retryAfterMs": 250}}}, 0.25),
        ({"error": {"message": "slow", "resets_in_seconds": 40}}, 40),
        ({"error": {"message": "slow", "quotaResetDelay": "1h0m2s"}}, 3602),
        ({"error": {"message": "slow", "retry_after": None}}, None),
        ({"error": {"message": "slow", "retry_after": True}}, None),
        ({"message": "Please try again in 20ms."}, 0.02),
        ({"message": "Please try again in 20 milliseconds."}, 0.02),
        ({"message": "Please try again in 1m3.5s."}, 63.5),
        ({"message": "Please retry after 6 seconds."}, 6),
        ({"message": "Request was throttled. Expected available in 30 seconds."}, 30),
        ({"message": "Too many requests; wait 2 minutes before you send another one"}, 120),
        ({"message": "Your quota will reset after 5s."}, 5),
        ({"message": "Please try again later."}, None),
        ({"message": "The model waits for 3 tools"}, None),
    ],
)
def test_wait_is_read_from_fields_and_words(body: object, seconds: float | None) -> None:
    for status in (429, 503):
        error = parse_error_body(status, body).error(CONTEXT)
        assert (error.retryable, error.retry_after) == (True, pytest.approx(seconds) if seconds else seconds)


@pytest.mark.parametrize("form", ["{:%Y-%m-%dT%H:%M:%SZ}", "{:%Y-%m-%d %H:%M:%S} UTC"])
def test_wait_until_a_moment(form: str) -> None:
    moment = form.format(datetime.now(UTC) + timedelta(seconds=50))
    for body in (
        {"message": "slow", "reset_at": moment.removesuffix(" UTC")},
        {"message": f"Limit resets at: {moment}"},
    ):
        assert parse_error_body(429, body).retry_after == pytest.approx(50, abs=3)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (
            {"message": "You exceeded your current quota, please check your plan and billing details."},
            errors.RequestRejected,
        ),
        (
            {"message": "You have exceeded your daily token limit", "code": "rate_limit_exceeded"},
            errors.RequestRejected,
        ),
        ({"message": "Monthly usage limit of the organization reached"}, errors.RequestRejected),
        ({"message": "Tokens per day (TPD): Limit 100, Used 99. Please try again in 14m24s."}, errors.RateLimited),
        ({"message": "Too many tokens, please wait before trying again."}, errors.RateLimited),
        (
            {"message": "no", "details": [{"quotaId": "RequestsPerDayPerModel"}, {"retryDelay": "9s"}]},
            errors.RequestRejected,
        ),
        ({"message": "The neurons for today are used: daily free allocation"}, errors.RequestRejected),
    ],
)
def test_limit_that_no_wait_helps_against_is_not_tried_again(body: object, kind: type[errors.ProviderError]) -> None:
    assert type(parse_error_body(429, {"error": body}).error(CONTEXT)) is kind


def test_messages_are_short_clean_and_without_keys() -> None:
    said = f"Incorrect key {CONTEXT.key}\x1b[31m\r\n\u2028 Authorization: Bearer abc.def123 " + "x" * 9000
    error = parse_error_body(401, {"error": {"message": said}}).error(CONTEXT)
    assert CONTEXT.key not in error.message
    assert "abc.def123" not in error.message
    assert error.message.isprintable()
    assert len(error.message) < 350
    assert "sk-test" not in repr(CONTEXT)


@given(st.text(), st.integers(200, 599))
def test_any_text_gives_a_printable_message(text: str, status: int) -> None:
    assert len(clean_message(text)) <= 300
    clean_message(text).encode()
    assert parse_error_body(status, text).error(CONTEXT).message


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "n_ctx"]), s),
    )
)
def test_any_body_is_read(body: object) -> None:
    assert isinstance(parse_error_body(400, body).error(CONTEXT), errors.ProviderError)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:20 GMT"}, 20.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:20 -0000"}, 20.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": ""}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(NOW.timestamp() + 9)}, 9.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(1000 * NOW.timestamp() + 9_500)}, 9.5),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "12"}, 12.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(NOW.timestamp() - 9)}, 0.0),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "12"}, 12.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "12", "retry-after": "3"}, 3.0),
        ({"x-ratelimit-remaining": "1", "x-ratelimit-reset": "12"}, None),
        ({"x-ratelimit-remaining": "0"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, None),
        # When the limit is whole again, not when the next request may be sent.
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "60s"}, None),
    ],
)
def test_retry_after_header(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers, NOW) == seconds


@given(st.text())
def test_any_retry_after_header_is_read_without_an_error(text: str) -> None:
    seconds = parse_retry_after({"retry-after": text}, NOW)
    assert seconds is None or 0 <= seconds < float("inf")


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (429, "slow down", errors.RateLimited),
        (429, "Error code: 429 - {'error': {'code': 'insufficient_quota'}}", errors.RequestRejected),
        (429, "billing hard limit reached", errors.RequestRejected),
        (529, "overloaded", errors.ProviderUnavailable),
        (400, "prompt is too long: 9 tokens > 8 maximum", errors.ContextOverflow),
        (400, "Input is too long for requested model.", errors.ContextOverflow),
        (413, "too large", errors.ContextOverflow),
        (403, "no", errors.AuthenticationError),
        (418, "no", errors.RequestRejected),
    ],
)
def test_statuses_with_texts_are_translated(status: int, text: str, kind: type[errors.ProviderError]) -> None:
    error = parse_error_body(status, text).error(CONTEXT)
    assert type(error) is kind
    assert error.message.startswith("openai (m): ")


def test_an_error_has_no_key_and_keeps_retry_after() -> None:
    error = parse_error_body(429, f"bad key {CONTEXT.key}", headers={"retry-after": "12"}).error(CONTEXT)
    assert isinstance(error, errors.RateLimited)
    assert error.retry_after == 12
    assert CONTEXT.key not in error.message


REFUSED: dict[Refusal, list[str]] = {
    "chat": [
        "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. Please use "
        "/v1/responses instead.",
        "This model is only supported in v1/responses and not in v1/chat/completions.",
    ],
    "tools": [
        "registry.ollama.ai/library/gemma3:4b does not support tools",
        "`tool calling` is not supported with this model",
        "No endpoints found that support tool use. To learn more about provider routing, visit the documentation.",
        "This model doesn't support tool use.",
        "Function calling is not enabled for models/gemma-3-27b-it",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "tools param requires --jinja flag",
        "Unsupported parameter: 'tools' is not supported with this model.",
    ],
    "forced_tools": [
        'tool_choice: type "tool" and "any" are not supported for this model.',
        "Thinking may not be enabled when tool_choice forces tool use.",
        "Thinking mode does not support this tool_choice",
        "deepseek-reasoner does not support this tool_choice",
        "The tool_choice parameter does not support being set to required or object in thinking mode",
        "tool_choice 'required' is incompatible with thinking enabled",
        "No endpoints found that support the provided 'tool_choice' value.",
    ],
    "schema": [
        "This response_format type is unavailable now",
        "This model does not support response format `json_schema`. See supported models in the documentation.",
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        "Json mode is not enabled for models/gemma-3-27b-it",
        "Invalid schema for response_format 'reply': In context=(), 'maxLength' is not permitted.",
        "output_config.format.schema: For 'string' type, property 'maxLength' is not supported",
        "'claude-3-5-haiku' does not support output format.",
    ],
    "adaptive_thinking": [
        "adaptive thinking is not supported on this model",
        "Only 'enabled' and 'disabled' are supported for thinking; 'adaptive' is not supported.",
        "Input should be 'enabled' or 'disabled'",
    ],
    "effort": [
        "This model does not support the effort parameter.",
        "Unrecognized request argument supplied: reasoning_effort",
    ],
    "reasoning": [
        "Encrypted content is not supported with this model.",
        "Your organization must be verified to generate reasoning summaries.",
        "Unsupported parameter: 'reasoning.summary' is not supported with this model.",
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
    ],
    "pictures": [
        "Invalid content type. image_url is only supported by certain models.",
        "No endpoints found that support image input",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "Failed to create new sequence: this model is missing data required for image input",
        "llama3 is not a multimodal model",
        "At most 0 image(s) may be provided in one prompt.",
        "Image input is not enabled for this model",
        "Failed to deserialize: messages[0]: unknown variant `image_url`, expected `text`",
    ],
    "temperature": ["Unsupported value: 'temperature' does not support 0.2 with this model."],
}


@pytest.mark.parametrize(("refusal", "text"), [(name, text) for name, texts in REFUSED.items() for text in texts])
def test_refusal_is_recognised_by_its_words(refusal: Refusal, text: str):
    reply = ErrorReply(400, text)
    assert find_refusal(reply, REFUSALS) == refusal
    assert find_refusal(reply, ()) is None, "the request held nothing of the kind"
    assert find_refusal(ErrorReply(429, text), REFUSALS) is None


@pytest.mark.parametrize(
    "text",
    [
        "Invalid 'tools[0].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'.",
        "Invalid schema for function 'vote': schema must be a JSON Schema of 'type: \"object\"'",
        "max_tokens is too large: 100000. At most 16384 tokens.",
        "prompt is too long: 213462 tokens > 200000 maximum",
        "Unsupported parameter: 'parallel_tool_calls'",
        "messages.1: tool_use ids were found without tool_result blocks immediately after",
    ],
)
def test_other_errors_are_no_refusals(text: str):
    assert find_refusal(ErrorReply(400, text), REFUSALS) is None


@pytest.mark.parametrize(
    "text",
    [
        "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
        "Tool choice is required, but model did not call a tool",
    ],
)
def test_tool_call_that_failed_at_the_server_asks_for_another_form(text: str):
    assert ErrorReply(400, text, ("tool_use_failed", "invalid_request_error")).kind is ToolsRefused


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "this host could not be found"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), ""),
        (ConnectionRefusedError(111, "Connection refused"), ""),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), ""),
    ],
)
def test_only_a_wrong_address_is_not_worth_another_attempt(cause: OSError, reason: str) -> None:
    wrapped = OSError("All connection attempts failed")
    wrapped.__cause__ = cause
    assert find_wrong_address(wrapped) == reason
