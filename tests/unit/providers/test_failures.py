"""Statuses, codes and words that servers use, and what they mean here."""

import socket
import ssl
from datetime import UTC, datetime

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
    find_refusal,
    find_wrong_address,
    parse_error_body,
    parse_retry_after,
    read_overflow,
    translate_error,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
CONTEXT = ErrorContext("openai", "m", "sk-test-0123456789")

OVERFLOWS = [
    (
        "OpenAI: This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens. "
        "Please reduce the length of the messages.",
        8545,
        8192,
    ),
    (
        "OpenAI (older): This model's maximum context length is 4097 tokens, however you requested 4231 tokens (3975 "
        "in your prompt; 256 for the completion).",
        4231,
        4097,
    ),
    ("OpenAI (newer): Your input exceeds the context window of this model. Please adjust your input.", None, None),
    (
        "OpenAI TPM: Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, "
        "Requested 40123. The input or output tokens must be reduced in order to run successfully.",
        40123,
        30000,
    ),
    ("Anthropic: prompt is too long: 213462 tokens > 200000 maximum", 213462, 200000),
    (
        "Anthropic: input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000, decrease input length",
        195000,
        200000,
    ),
    ("llama.cpp: request (10031 tokens) exceeds the available context size (1024 tokens)", 10031, 1024),
    ("llama.cpp (older): the request exceeds the available context size, try increasing it", None, None),
    (
        "vLLM: This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 in the "
        "messages, 500 in the completion). Please reduce the length of the messages or completion.",
        5000,
        4096,
    ),
    (
        "vLLM: This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. "
        "Please reduce the length of the input messages.",
        5000,
        4096,
    ),
    ("vLLM: The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 5000, 4096),
    (
        "SGLang: Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a "
        "total of 5000 tokens: 4500 tokens from the input messages and 500 tokens for the completion.",
        5000,
        4096,
    ),
    ("SGLang: Input length (5000) exceeds model's maximum context length (4096).", 5000, 4096),
    ("Groq: Please reduce the length of the messages or completion.", None, None),
    (
        "Groq: Request too large for model `llama-3.1-8b-instant` in organization `org` service tier `on_demand` on "
        "tokens per minute (TPM): Limit 6000, Requested 10021, please reduce your message size and try again.",
        10021,
        6000,
    ),
    (
        "Together: Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 80125 `inputs` "
        "tokens and 4096 `max_new_tokens`",
        80125,
        4097,
    ),
    ("Together: The input (9000 tokens) is longer than the model's context length (8192 tokens).", 9000, 8192),
    (
        "Azure: This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tok"
        "ens.",
        130001,
        128000,
    ),
    (
        "Mistral: Prompt contains 40000 tokens and 0 draft tokens, too large for "
        "model with 32768 maximum context length",
        40000,
        32768,
    ),
    (
        "Gemini: The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        1196265,
        1048575,
    ),
    ("Gemini: The input token count exceeds the maximum number of tokens allowed (1048576).", None, 1048576),
    ("xAI: This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 537812, 131072),
    (
        "OpenRouter: This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 "
        "tokens (139000 of text input, 1000 in the output).",
        140000,
        131072,
    ),
    (
        "DeepSeek: This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (66000 in "
        "the messages, 4000 in the completion).",
        70000,
        65536,
    ),
    (
        "Cerebras: Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
        9000,
        8192,
    ),
    ("Fireworks: The prompt is too long: 140000, model maximum context length: 131071", 140000, 131071),
    ("Ollama: the input length exceeds the context length", None, None),
    ("Ollama: input exceeds maximum context length", None, None),
    ("Ollama: prompt too long; exceeded max context length by 4 tokens", None, None),
    (
        "LM Studio: Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded "
        "with context length of only 4096 tokens, which is not enough.",
        5000,
        4096,
    ),
    ("LM Studio: The number of tokens to keep from the initial prompt is greater than the context length.", None, None),
    ("somebody: context_length_exceeded", None, None),
    ("Bedrock (Claude): Input is too long for requested model.", None, None),
    (
        "Bedrock (Titan): 400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: "
        "10022",
        10022,
        8192,
    ),
    (
        "Bedrock (Nova): Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input "
        "to try again.",
        None,
        None,
    ),
    (
        "Bedrock (Titan, characters): Malformed input request: expected maxLength: 42000, actual: 50123, please "
        "reformat your input and try again.",
        None,
        None,
    ),
    (
        "Vertex: Unable to submit request because the input token count is 1230000 but model only supports up to "
        "1048576. Reduce the input token count and try again.",
        1230000,
        1048576,
    ),
    (
        "Cohere: too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5017. Try using a "
        "shorter prompt, or enable prompt truncation.",
        5017,
        4081,
    ),
    ("Cohere (newer): too many tokens: size limit exceeded by 11326 tokens. Try using shorter inputs.", None, None),
    ("Qwen: <400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]", None, 30720),
    ("Moonshot: Invalid request: Your request exceeded model token limit: 8192 (requested: 9001)", 9001, 8192),
    ("Moonshot (older): Invalid request: Your request exceeded model token limit: 8192", None, 8192),
    ("Z.ai: Prompt exceeds max length", None, None),
    ("MiniMax: invalid params, context window exceeds limit (2013)", None, None),
    (
        "vLLM (reply): 'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum context length "
        "is 2048 tokens and your request has 1900 input tokens (512 > 2048 - 1900).",
        1900,
        2048,
    ),
    (
        "vLLM (newer): This model's maximum context length is 4096 tokens. However, you requested 512 output tokens "
        "and your prompt contains at least 3585 input tokens, for a total of at least 4097 tokens.",
        3585,
        4096,
    ),
]


@pytest.mark.parametrize(("said", "prompt", "window"), OVERFLOWS, ids=[t.split(":")[0] for t, _, _ in OVERFLOWS])
def test_each_way_of_saying_context_too_long(said: str, prompt: int | None, window: int | None) -> None:
    text = said.split(": ", 1)[1]
    assert read_overflow(text) == (prompt, window)
    for status in (400, 413, 422, 429, 500, 200):
        error = parse_error_body(status, {"error": {"message": text}}).error(CONTEXT)
        assert isinstance(error, errors.ContextOverflow)
        assert (error.prompt_tokens, error.window) == (prompt, window)


@pytest.mark.parametrize(
    "text",
    [
        "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 3000.",
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 2048 "
        "tokens and your request has 100 input tokens (4096 > 2048 - 100).",
        "Invalid 'messages': array too long. Expected an array with maximum length 2048.",
        "The server is overloaded",
        "",
    ],
)
def test_other_complaints_are_no_overflow(text: str) -> None:
    assert read_overflow(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "The request has 9000 tokens, which is more than the model can take.",
        "prompt token count of 70000 exceeds the limit of 64000",
        "`inputs` must have less than 1024 tokens. Given: 1500, which is too long",
        "Prompt length (5000) exceeds maximum input length (4096)",
    ],
)
def test_refusal_of_a_long_prompt_in_unknown_words_is_an_overflow(text: str) -> None:
    assert read_overflow(text) is None
    assert type(parse_error_body(400, {"error": {"message": text}}).error(CONTEXT)) is errors.ContextOverflow
    assert type(parse_error_body(429, {"error": {"message": text}}).error(CONTEXT)) is errors.RateLimited


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
        (None, "Bad Gateway"),
        ({}, "Bad Gateway"),
        ([], "Bad Gateway"),
        ({"error": {"message": ["m"]}}, "Bad Gateway"),
    ],
)
def test_bodies_of_every_shape_are_read(body: object, text: str) -> None:
    assert parse_error_body(500, body, "Bad Gateway").text == text


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


class Response:
    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class SdkError(Exception):
    """As the libraries made by Stainless, requests and Ollama's have it."""

    def __init__(self, text: str, status: int | None = None, **headers: str) -> None:
        super().__init__(text)
        if status is not None:
            self.status_code = status
            self.response = Response(status, **headers)


class ReadTimeoutError(SdkError): ...


class TransportFailure(SdkError): ...


class GeminiError(Exception):
    code = 503


class ContentFilterFinishReasonError(Exception): ...


class BotoError(Exception):
    """As botocore.exceptions.ClientError has it."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(f"An error occurred (ValidationException) when calling the Converse operation: {text}")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SdkError("slow down", 429), errors.RateLimited),
        (SdkError("Error code: 429 - {'error': {'code': 'insufficient_quota'}}", 429), errors.RequestRejected),
        (SdkError("billing hard limit reached", 429), errors.RequestRejected),
        (SdkError("overloaded", 529), errors.ProviderUnavailable),
        (SdkError("prompt is too long: 9 tokens > 8 maximum", 400), errors.ContextOverflow),
        (SdkError("too large", 413), errors.ContextOverflow),
        (SdkError("no", 418), errors.RequestRejected),
        (GeminiError("try later"), errors.ProviderUnavailable),
        (BotoError("Input is too long for requested model.", 400), errors.ContextOverflow),
        (BotoError("no", 403), errors.AuthenticationError),
        (ValueError("prompt is too long: 9 tokens > 8 maximum"), errors.ContextOverflow),
        (ReadTimeoutError("60 s"), errors.ProviderTimeout),
        (TimeoutError(), errors.ProviderTimeout),
        (ConnectionResetError("reset"), errors.ProviderConnectionError),
        (TransportFailure("broken"), errors.ProviderConnectionError),
        (ContentFilterFinishReasonError("filtered"), errors.ContentRefused),
        (TypeError("'NoneType' object is not subscriptable"), errors.MalformedResponse),
    ],
)
def test_exceptions_of_any_library_are_translated(error: Exception, kind: type[errors.ProviderError]) -> None:
    translated = translate_error(error, CONTEXT)
    assert type(translated) is kind
    assert translated.message.startswith("openai (m): ")


def test_own_errors_are_not_translated() -> None:
    error = errors.ContentRefused("no")
    assert translate_error(error, CONTEXT) is error


def test_a_translated_error_has_no_key_and_keeps_retry_after() -> None:
    translated = translate_error(SdkError(f"bad key {CONTEXT.key}", 429, retry_after="12"), CONTEXT)
    assert isinstance(translated, errors.RateLimited)
    assert translated.retry_after == 12
    assert CONTEXT.key not in translated.message


def test_hints_name_the_configuration_of_the_model() -> None:
    context = ErrorContext("groq", "m", "", "memory.persistent_memory.llm")
    assert "memory.persistent_memory.llm.model" in context.error(errors.ModelNotFound, "no").hint


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
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "there is no host with this name"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), ""),
        (ConnectionRefusedError(111, "Connection refused"), ""),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), ""),
    ],
)
def test_only_a_wrong_address_is_not_worth_another_attempt(cause: OSError, reason: str) -> None:
    wrapped = OSError("All connection attempts failed")
    wrapped.__cause__ = cause
    assert find_wrong_address(wrapped) == reason
