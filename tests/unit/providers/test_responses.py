"""What goes over the wire to the Responses API."""

from massmem.config.models import BackendConfig
from massmem.core.attachments import make_attachment
from massmem.core.messages import ChatMessage, ChatRequest
from massmem.providers.base import Thoughts
from massmem.providers.presets import resolve
from massmem.providers.responses import request_body


def test_pictures_and_documents_stand_before_the_text() -> None:
    shown = (
        make_attachment("a.png", "image/png", b"\x00\x01\x02"),
        make_attachment("b.pdf", "application/pdf", b"\x03\x04\x05"),
    )
    backend = BackendConfig.model_validate({"type": "openai", "model": "m", "api_key": "k"})
    request = ChatRequest((ChatMessage("user", "What is it?", attachments=shown),), "answer", "a")
    (message,) = request_body(request, backend, resolve(backend, {}), Thoughts())["input"]
    assert message["content"] == [
        {"type": "input_image", "image_url": "data:image/png;base64,AAEC"},
        {"type": "input_file", "filename": "b.pdf", "file_data": "data:application/pdf;base64,AwQF"},
        {"type": "input_text", "text": "What is it?"},
    ]
