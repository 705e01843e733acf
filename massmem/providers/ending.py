"""How a conversation has to end for most models: with the user's word."""

from collections.abc import Sequence

from massmem.messages import ChatMessage

_GO_ON = ChatMessage("user", "Go on.")


def with_user_last(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """The conversation, with a short request to go on after a last message of the assistant.

    OpenAI's models begin a new message of their own after one. Mistral's and Gemini's servers refuse such a request,
    and those on llama.cpp or Ollama take the message for the beginning of the reply and continue in mid-sentence.
    """
    if messages and messages[-1].role == "assistant":
        return (*messages, _GO_ON)
    return messages
