import pytest

from massmem.config.models import BackendConfig
from massmem.messages import ChatMessage, ChatRequest
from massmem.providers.ending import with_user_last
from massmem.providers.openai import request_body
from massmem.providers.presets import resolve

ASKED = (ChatMessage("system", "Be brief."), ChatMessage("user", "Capital?"))
SUMMED_UP = (*ASKED, ChatMessage("assistant", "I have read the atlas."))


def test_only_an_assistants_last_word_is_followed():
    assert with_user_last(SUMMED_UP) == (*SUMMED_UP, ChatMessage("user", "Go on."))
    assert with_user_last(ASKED) == ASKED
    assert with_user_last(()) == ()
    result = (*SUMMED_UP, ChatMessage("tool", "Paris", tool_call_id="1"))
    assert with_user_last(result) == result


@pytest.mark.parametrize(
    ("type_", "last"),
    [
        ("openai", "assistant"),
        ("azure_openai", "assistant"),
        ("mistral", "user"),
        ("gemini", "user"),
        ("ollama", "user"),
    ],
)
def test_who_needs_it(type_: str, last: str):
    backend = BackendConfig.model_validate(
        {"type": type_, "model": "m", "api_key": "sk-0123456789", "base_url": "http://127.0.0.1:9/v1"}
    )
    body = request_body(ChatRequest(SUMMED_UP, "answer"), backend, resolve(backend, {}))
    assert body["messages"][-1]["role"] == last
