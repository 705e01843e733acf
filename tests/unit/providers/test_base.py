import pytest

from massmem.config.models import BackendConfig
from massmem.core.messages import ChatMessage, ChatRequest
from massmem.providers.base import end_with_user
from massmem.providers.endpoints import resolve
from massmem.providers.openai import build_chat_body

ASKED = (ChatMessage("system", "Be brief."), ChatMessage("user", "Capital?"))
SUMMED_UP = (*ASKED, ChatMessage("assistant", "I have read the atlas."))


def test_only_a_conversation_that_ends_with_the_assistant_gets_a_user_message():
    assert end_with_user(SUMMED_UP) == (*SUMMED_UP, ChatMessage("user", "Go on."))
    assert end_with_user(ASKED) == ASKED
    assert end_with_user(()) == ()
    result = (*SUMMED_UP, ChatMessage("tool", "Paris", tool_call_id="1"))
    assert end_with_user(result) == result


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
def test_requests_end_with_the_user_except_for_openai(type_: str, last: str):
    backend = BackendConfig.model_validate(
        {"type": type_, "model": "m", "api_key": "sk-0123456789", "base_url": "http://127.0.0.1:9/v1"}
    )
    body = build_chat_body(ChatRequest(SUMMED_UP, "answer"), backend, resolve(backend, {}))
    assert body["messages"][-1]["role"] == last
