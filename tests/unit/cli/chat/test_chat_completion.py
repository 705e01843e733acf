from collections.abc import Sequence

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from massmem.cli.chat.completion import Commands


async def offers(name: str, words: Sequence[str]) -> Sequence[str]:
    match name, words:
        case "resume", _:
            return ["Trip to Lisbon", "session_1"]
        case "model", []:
            return ["ann", "ben"]
        case "model", [_]:
            return ["openai/gpt-5-mini"]
        case _:
            return ()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("/", ["/model", "/resume"]),
        ("/re", ["/resume"]),
        ("/resume ", ["Trip to Lisbon", "session_1"]),
        ("/resume trip to", ["Trip to Lisbon"]),
        ("/model b", ["ben"]),
        ("/model ben o", ["openai/gpt-5-mini"]),
        ("/model ben", []),
        ("why", []),
        ("/a\nb", []),
    ],
)
async def test_what_may_follow(line: str, found: list[str]):
    completer = Commands({"model": "m", "resume": "r"}, offers)
    document = Document(line)
    completions = [c async for c in completer.get_completions_async(document, CompleteEvent())]
    assert [c.text for c in completions] == found
    assert all(line[: len(line) + c.start_position] + c.text for c in completions)
