"""Failures as mem0's libraries raise them, of which not all are installed here."""

import pytest

from massmem.config.models import MemoryLlmConfig
from massmem.core.errors import (
    ContentRefused,
    ContextOverflow,
    MalformedResponse,
    MassmemError,
    ProviderConnectionError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
)
from massmem.memory.extraction.mem0_failures import failure
from massmem.memory.extraction.mem0_models import finish_of

CONFIG = MemoryLlmConfig.model_validate({"provider": "groq", "api_key": "sk-0123456789abcdefghij"})


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


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SdkError("slow down", 429), RateLimited),
        (SdkError("billing hard limit reached", 429), RequestRejected),
        (SdkError("overloaded", 529), ProviderUnavailable),
        (SdkError("prompt is too long: 9 tokens > 8 maximum", 400), ContextOverflow),
        (SdkError("too large", 413), ContextOverflow),
        (SdkError("no", 418), RequestRejected),
        (GeminiError("try later"), ProviderUnavailable),
        (ReadTimeoutError("60 s"), ProviderTimeout),
        (TimeoutError(), ProviderTimeout),
        (ConnectionResetError("reset"), ProviderConnectionError),
        (TransportFailure("broken"), ProviderConnectionError),
        (ContentFilterFinishReasonError("filtered"), ContentRefused),
        (TypeError("'NoneType' object is not subscriptable"), MalformedResponse),
    ],
)
def test_each_library_is_understood(error: Exception, kind: type[MassmemError]):
    found = failure(error, CONFIG)
    assert type(found) is kind
    assert found.message.startswith("groq (default model): ")


def test_our_own_errors_stay_what_they_are():
    error = ContentRefused("no")
    assert failure(error, CONFIG) is error


def test_the_key_is_never_shown():
    assert "0123456789abcdefghij" not in failure(SdkError("bad key sk-0123456789abcdefghij", 401), CONFIG).message


def test_a_server_says_when_to_come_back():
    found = failure(SdkError("slow down", 429, retry_after="12"), CONFIG)
    assert isinstance(found, RateLimited)
    assert found.retry_after == 12


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize(
    ("response", "finish"),
    [
        ({"choices": [{"finish_reason": "stop", "message": {}}]}, "stop"),
        ({"choices": [{"finish_reason": "length", "message": {}}]}, "length"),
        ({"choices": [{"finish_reason": "stop", "message": {"refusal": "No."}}]}, "content_filter"),
        ({"stop_reason": "max_tokens"}, "length"),
        ({"stop_reason": "refusal"}, "content_filter"),
        ({"done_reason": "stop"}, "stop"),
        ({"done_reason": "length"}, "length"),
        ({"candidates": [{"finish_reason": Named("MAX_TOKENS")}]}, "length"),
        ({"candidates": [{"finish_reason": Named("SAFETY")}]}, "content_filter"),
        ({"choices": []}, None),
        ("text", None),
    ],
)
def test_why_a_reply_ended_is_read_in_each_providers_words(response: object, finish: str | None):
    assert finish_of(response) == finish
