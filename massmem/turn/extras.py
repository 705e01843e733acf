"""What a step has said and been told beyond its prompt (tool calls and results, a reply that was begun), made smaller.

Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from massmem import prompts
from massmem.memory.compression import Said, condensed, said, shortened
from massmem.messages import ChatMessage
from massmem.replies import Reply


def units(extra: Sequence[ChatMessage]) -> list[int]:
    """Where what belongs together begins: a message of the agent, with the results of its calls."""
    return [i for i, message in enumerate(extra) if i == 0 or message.role == "assistant"]


def first_kept(extra: Sequence[ChatMessage], cost: Callable[[ChatMessage], int], room: int) -> int:
    """Index of the first message that stays word for word: the newest in `room` tokens, and the last unit in any case.

    What comes before goes into a summary, calls together with their results.
    """
    starts = units(extra)
    first, used = len(extra), 0
    for start in reversed(starts):
        used += sum(map(cost, extra[start:first]))
        if used > room and first < len(extra):
            break
        first = start
    return first


def smaller(extra: Sequence[ChatMessage], room: int, count: Callable[[str], int]) -> tuple[ChatMessage, ...]:
    """The same messages in about `room` tokens; results stay within their frames, and calls as they are."""
    texts = [message.content for message in extra]
    shorter = condensed(texts, room, count)
    return tuple(
        message
        if text == message.content
        else replace(message, content=prompts.smaller_result(message.content, _to(count(text), count)))
        for message, text in zip(extra, shorter, strict=True)
    )


def _to(tokens: int, count: Callable[[str], int]) -> Callable[[str], str]:
    return lambda text: shortened(text, tokens, count)


def work(reply: Reply, partial: str) -> list[Said]:
    """What a reply held when it was broken off."""
    calls = ChatMessage("assistant", reply.text or partial, tool_calls=tuple(reply.tool_calls))
    texts = [Said("You (thinking)", reply.reasoning), *said([calls])]
    return [text for text in texts if text.text.strip()]


def begun(text: str, room: int, cost: Callable[[str], int]) -> str:
    """The text in `room` tokens: its newest part word for word, of the rest the best sentences."""
    size = cost(text)
    if size <= room:
        return text
    at = len(text) - len(text) * room // (2 * size)
    return f"{shortened(text[:at], room // 2, cost)}\n{text[at:]}"
