"""Statuses, codes and words that servers use, and what they mean here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem import errors
from massmem.providers.failures import Source, cleaned, complaint, is_overflow, overflow_numbers

SOURCE = Source("openai", "m", "sk-test-0123456789")

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
]


@pytest.mark.parametrize(("said", "prompt", "window"), OVERFLOWS, ids=[t.split(":")[0] for t, _, _ in OVERFLOWS])
def test_each_way_of_saying_context_too_long(said: str, prompt: int | None, window: int | None) -> None:
    text = said.split(": ", 1)[1]
    assert is_overflow(text)
    assert overflow_numbers(text) == (prompt, window)
    for status in (400, 413, 422, 429, 500, 200):
        error = complaint(status, {"error": {"message": text}}).error(SOURCE)
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
    assert not is_overflow(text)


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
    error = complaint(400, body).error(SOURCE)
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
    error = complaint(status, {"error": {"message": "no", "type": "invalid_request_error"}}).error(SOURCE)
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
    assert type(complaint(status, {"error": {"message": "no", "code": code}}).error(SOURCE)) is kind


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
    assert complaint(500, body, "Bad Gateway").text == text


def test_messages_are_short_clean_and_without_keys() -> None:
    said = f"Incorrect key {SOURCE.key}\x1b[31m\r\n\u2028 Authorization: Bearer abc.def123 " + "x" * 9000
    error = complaint(401, {"error": {"message": said}}).error(SOURCE)
    assert SOURCE.key not in error.message
    assert "abc.def123" not in error.message
    assert error.message.isprintable()
    assert len(error.message) < 350
    assert "sk-test" not in repr(SOURCE)


@given(st.text(), st.integers(200, 599))
def test_any_text_gives_a_printable_message(text: str, status: int) -> None:
    assert len(cleaned(text)) <= 300
    cleaned(text).encode()
    assert complaint(status, text).error(SOURCE).message


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "n_ctx"]), s),
    )
)
def test_any_body_is_read(body: object) -> None:
    assert isinstance(complaint(400, body).error(SOURCE), errors.ProviderError)
