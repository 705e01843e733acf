"""What servers send, in all the shapes that are known of them, and what becomes of it."""

import copy
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from massmem.core.errors import ProviderError
from massmem.core.messages import ChatMessage, ChatRequest, NoticeChunk, Reply, TextChunk, ToolSpec
from massmem.providers.anthropic import MessageReader
from massmem.providers.chat_reader import ChatReader
from massmem.providers.failures import ErrorContext
from massmem.providers.normaliser import Frames, ReplyReader
from massmem.providers.openai import ResponseReader
from tests.support.wires import Wire, list_wires


@pytest.mark.parametrize("wire", [pytest.param(wire, id=wire.name) for wire in list_wires()])
async def test_shape_of_the_wire_is_read(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    await wire.check(caplog)


def test_thoughts_without_a_mark_at_the_beginning_are_held_back_once_it_is_known() -> None:
    for is_known, text in [(False, "hm</think>At noon."), (True, "hm</think>At noon."), (True, "At noon.")]:
        reader, reply, shown = ChatReader(REQUEST, CONTEXT), Reply(), ""
        reader.held = "" if is_known else None
        for piece in (*text, None):
            choice = {"delta": {"content": piece}, "finish_reason": None if piece else "stop"}
            for chunk in reader.feed({"choices": [choice]}):
                reply.feed(chunk)
                shown += chunk.text if isinstance(chunk, TextChunk) else ""
        for chunk in reader.close():
            reply.feed(chunk)
        assert reader.is_unmarked == ("hm" in text)
        assert (reply.text, reply.reasoning) == ("At noon.", "hm" if "hm" in text else "")
        assert shown == ("hmAt noon." if not is_known else "At noon." if "hm" in text else "")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("At noon.<|eot_id|>", "At noon."),
        ("At noon.<|im_end|>\n<|im_start|>user\nAnd back?<|im_end|>", "At noon."),
        ("At noon.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnd back?", "At noon."),
        ("At noon.<|im_end|>\nuser\nAnd back?", "At noon."),
        ("At noon.<|channel>thought\n", "At noon."),
        ("<think>hm</think>At noon.</s>", "At noon."),
        ("The mark is `<|eot_id|>`", None),
        ("The mark is <|eot_id|>", None),
        ("<|eot_id|>", None),
        ("A<|im_end|> is no end", None),
        ("```\nA<|im_end|>\n<|im_start|>user\nB<|im_end|>\n```\nThat is ChatML.", None),
        ("a < b", None),
    ],
)
def test_marks_of_a_template_are_cut_off_the_end_and_named(written: str, shown: str | None) -> None:
    for size in (1, 7, 1_000):
        reader, reply, chunks = ChatReader(REQUEST, CONTEXT), Reply(), list[object]()
        pieces = [written[i : i + size] for i in range(0, len(written), size)]
        for piece in (*pieces, None):
            choice = {"delta": {"content": piece}, "finish_reason": None if piece else "stop"}
            chunks += reader.feed({"choices": [choice]})
        for chunk in [*chunks, *reader.close()]:
            reply.feed(cast("Any", chunk))
            chunks.append(chunk)
        assert reply.text == (written if shown is None else shown)
        assert any(isinstance(chunk, NoticeChunk) for chunk in chunks) == (shown is not None)


# Any valid stream, cut and ordered in any way, and with anything in between, is the same reply.

Json = dict[str, Any]
TOOLS = tuple(
    ToolSpec(name, "", {"type": "object", "properties": {"word": {"type": "string"}}}) for name in ("look", "vote")
)
REQUEST = ChatRequest((ChatMessage("user", "When?"),), "answer", tools=TOOLS)
CONTEXT = ErrorContext("openai", "m", "")
WORDS = [
    "At ", "noon", "<", "</", "think", "</think>", "<think>", ">", "`", "🚢", "é", "\n", "{", "[TH", "◁", ".", "<|",
    "<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>", "<|end|>", "[THINK]", "[/THINK]",
]  # fmt: skip
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map("".join)
EXAMPLES = [25, pytest.param(5_000, marks=pytest.mark.full)]


@dataclass(frozen=True)
class Content:
    """What a model says in one reply."""

    reasoning: str
    text: str
    calls: Sequence[tuple[str, str]]


def write_call(name: str, word: str) -> tuple[str, str]:
    return name, json.dumps({"word": word}, ensure_ascii=False)


replies = st.builds(
    Content, st.sampled_from(["", "hm, 🚢"]), texts,
    st.lists(st.builds(write_call, st.sampled_from(["look", "vote"]), texts), max_size=3),
)  # fmt: skip


class Plain:
    """A server that sends everything whole, and in order."""

    def cut(self, text: str) -> list[str]:
        return [text]

    def pick(self, options: Sequence[Any]) -> Any:
        return options[0]

    def choose(self, options: Sequence[str]) -> Sequence[str]:
        """Return some of them, one at least."""
        return options

    def mix(self, *queues: Sequence[Json]) -> list[Json]:
        """Return the events of all queues in an order that keeps that of each."""
        left, mixed = [list(queue) for queue in queues if queue], list[Json]()
        while left:
            mixed.append(self.pick(left).pop(0))
            left = [queue for queue in left if queue]
        return mixed


class Drawn(Plain):
    """A server that sends what the protocol allows."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def cut(self, text: str) -> list[str]:
        """Return the text in pieces; JSON allows to cut a letter of two halves."""
        halves = text.encode("utf-16-le", "surrogatepass")
        units = [halves[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(halves), 2)]
        places = self.data.draw(st.sets(st.integers(0, len(units)), max_size=4))
        ends = sorted({0, len(units), *places})
        return ["".join(units[a:b]) for a, b in pairwise(ends)]

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.data.draw(st.integers(0, len(options) - 1))]

    def choose(self, options: Sequence[str]) -> Sequence[str]:
        return sorted(self.data.draw(st.sets(st.sampled_from(options), min_size=1)))


def say_in_chat(server: Plain, content: Content) -> list[Json]:
    def chunk(delta: Json, finish: str | None = None) -> Json:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    queues = [[chunk({"content": piece}) for piece in server.cut(content.text)]]
    for i, (name, arguments) in enumerate(content.calls):
        first = {"index": i, "id": f"c{i}", "function": {"name": name, "arguments": server.pick(["", None])}}
        pieces = [{"index": i, "function": {"arguments": piece}} for piece in server.cut(arguments)]
        queues.append([chunk({"tool_calls": [piece]}) for piece in (first, *pieces)])
    thoughts = [chunk({"reasoning_content": piece}) for piece in server.cut(content.reasoning)]
    usage: Json = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    return [*thoughts, *server.mix(*queues), *server.mix([chunk({}, "stop")], [usage])]


def say_in_messages(server: Plain, content: Content) -> list[Json]:
    def block(start: Json, kind: str, field: str, text: str) -> list[Json]:
        deltas = [{"type": "content_block_delta", "delta": {"type": kind, field: piece}} for piece in server.cut(text)]
        return [{"type": "content_block_start", "content_block": start}, *deltas, {"type": "content_block_stop"}]

    blocks = [block({"type": "thinking", "thinking": ""}, "thinking_delta", "thinking", content.reasoning)]
    blocks.append(block({"type": "text", "text": ""}, "text_delta", "text", content.text))
    for i, (name, arguments) in enumerate(content.calls):
        start: Json = {"type": "tool_use", "id": f"c{i}", "name": name, "input": {}}
        blocks.append(block(start, "input_json_delta", "partial_json", arguments))
    parts = [{**event, "index": index} for index, events in enumerate(blocks) for event in events]
    usage = {"usage": {"input_tokens": 7, "output_tokens": 3}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, **usage}
    return [{"type": "message_start", "message": usage}, *parts, end, {"type": "message_stop"}]


def say_in_responses(server: Plain, content: Content) -> list[Json]:
    thoughts = [{"type": "response.reasoning_text.delta", "delta": piece} for piece in server.cut(content.reasoning)]
    message: Json = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": content.text}]}
    items = [(message, "output_text", "text", content.text)]
    for i, (name, arguments) in enumerate(content.calls):
        item = {"type": "function_call", "id": f"f{i}", "call_id": f"c{i}", "name": name, "arguments": arguments}
        items.append((item, "function_call_arguments", "arguments", arguments))
    queues, output = list[list[Json]](), list[Json]()
    for index, (item, kind, field, text) in enumerate(items):
        place, where = {"output_index": index}, {"item_id": item["id"], "output_index": index, "content_index": 0}
        forms = {
            "1": [{"type": f"response.{kind}.delta", **where, "delta": piece} for piece in server.cut(text)],
            "2": [{"type": f"response.{kind}.done", **where, field: text}],
            "3": [{"type": "response.output_item.done", **place, "item": item}],
            "4": [],
        }
        chosen = server.choose(list(forms))
        output += [item] if "4" in chosen else []
        added: Json = {"type": "response.output_item.added", **place, "item": {**item, "content": [], "arguments": ""}}
        queues.append([added, *(event for form in chosen for event in forms[form])])
    response = {"status": "completed", "output": output, "usage": {"input_tokens": 7, "output_tokens": 3}}
    return [*thoughts, *server.mix(*queues), {"type": "response.completed", "response": response}]


APIS: Mapping[str, tuple[Callable[[Plain, Content], list[Json]], Callable[[], ReplyReader]]] = {
    "chat": (say_in_chat, lambda: ChatReader(REQUEST, CONTEXT)),
    "responses": (say_in_responses, lambda: ResponseReader(REQUEST, CONTEXT)),
    "anthropic": (say_in_messages, lambda: MessageReader(REQUEST, CONTEXT)),
}
UNKNOWN = [
    ": comment\n\n", "retry: 5\n\n", "id: 7\n\n", "event: ping\n\n", "data:\n\n", "data: ping\n\n", "\n\n",
    'event: ping\ndata: {"type": "ping"}\n\n', 'data: {"type": "song", "verse": 1}\n\n', "data: {}\n\n",
]  # fmt: skip


def encode(data: st.DataObject, events: Sequence[Json]) -> bytes:
    """Return the events as a server may write them, with others between them."""
    parts: list[str] = []
    for event in events:
        parts += data.draw(st.lists(st.sampled_from(UNKNOWN), max_size=1))
        parts.append(f"event: {event['type']}\n" if "type" in event and data.draw(st.booleans()) else "")
        plain = json.dumps(event, ensure_ascii=False)
        halves = re.search("[\ud800-\udfff]", plain)
        parts.append(f"data: {json.dumps(event) if halves or data.draw(st.booleans()) else plain}\n\n")
    return "".join(parts).replace("\n", data.draw(st.sampled_from(["\n", "\r\n", "\r"]))).encode()


def read(reader: ReplyReader, blocks: Iterable[bytes]) -> Reply:
    frames, reply = Frames(), Reply()
    elements = [element for block in blocks for element in frames.feed(block)]
    for element in (*elements, *frames.feed(b"", final=True)):
        for chunk in reader.feed(element):
            reply.feed(chunk)
    for chunk in reader.close():
        reply.feed(chunk)
    # What goes back with a call is as the server has sent it, and so not the same in all forms.
    calls = [replace(call, state="") for call in reply.tool_calls]
    return replace(reply, tool_calls=sorted(calls, key=lambda call: call.id))


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("api", APIS)
def test_stream_in_any_pieces_and_order_with_anything_in_between_is_the_same_reply(api: str, examples: int) -> None:
    say, open_reader = APIS[api]

    @settings(max_examples=examples)
    @given(replies, st.data())
    def check(content: Content, data: st.DataObject) -> None:
        whole = "".join(f"data: {json.dumps(event)}\n\n" for event in say(Plain(), content))
        expected = read(open_reader(), [whole.encode()])
        assert [(call.name, call.arguments) for call in expected.tool_calls] == list(content.calls)
        assert (expected.usage.prompt, expected.usage.completion) == (7, 3)
        payload = encode(data, say(Drawn(data), content))
        ends = sorted({0, len(payload), *data.draw(st.sets(st.integers(0, len(payload)), max_size=6))})
        assert read(open_reader(), [payload[a:b] for a, b in pairwise(ends)]) == expected

    check()


@pytest.mark.parametrize("api", APIS)
def test_damaged_bytes_raise_nothing_but_errors_of_the_provider(api: str) -> None:
    say, open_reader = APIS[api]

    @given(replies, st.data())
    def check(content: Content, data: st.DataObject) -> None:
        payload = bytearray(encode(data, say(Plain(), content)))
        for _ in range(data.draw(st.integers(1, 5))):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
        with suppress(ProviderError):
            read(open_reader(), [bytes(payload)])

    check()


def test_long_and_hostile_replies_are_read_in_linear_time() -> None:
    def build(delta: Json) -> bytes:
        return f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n".encode()

    piece = {"index": 0, "function": {"name": "vote", "arguments": "x" * 8}}
    hostile = [
        b"data: {\n" * 200_000,
        b'{"a": [\n' * 200_000,
        build({"content": "`</think>` " * 50_000}),
        build({"content": "`<think"}) * 10_000,
        build({"tool_calls": [piece]}) * 10_000,
    ]
    for payload in hostile:
        started = time.process_time()
        with suppress(ProviderError):
            read(ChatReader(REQUEST, CONTEXT), [payload])
        assert time.process_time() - started < 5, payload[:60]


JUNK = [None, True, 99, 7.5, "x", [], {}, [1], {"a": 1}]
PIECES = ["t0. ", "t1. ", "t2. "]


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value below this one."""
    fields = cast("Json", value) if isinstance(value, dict) else {}
    items = cast("list[Any]", value) if isinstance(value, list) else []
    for key, inner in (*fields.items(), *enumerate(items)):
        yield (*path, key)
        yield from list_paths(inner, (*path, key))


class Marked(Plain):
    """A server that sends the text, and each call, in three pieces."""

    def cut(self, text: str) -> list[str]:
        return PIECES if text == "".join(PIECES) else [text[:4], text[4:9], text[9:]]


@pytest.mark.parametrize("api", APIS)
def test_value_of_a_wrong_type_costs_its_element_and_no_other(api: str) -> None:
    say, open_reader = APIS[api]
    calls = [write_call("look", "pier"), write_call("vote", "dawn")]
    events = say(Marked(), Content("hm", "".join(PIECES), calls))
    for number, event in enumerate(events):
        for path, junk in product(list_paths(event), JUNK):
            odd = copy.deepcopy(events)
            place: Any = odd[number]
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = junk
            where, written = f"{path} of {event} is {junk!r}", json.dumps(event)
            payload = "".join(f"data: {json.dumps(event)}\n\n" for event in odd).encode()
            is_end = re.search('finish_reason": "stop|stop_reason": "|completed', written)
            try:
                reply = read(open_reader(), [payload])
            except ProviderError as e:
                assert is_end, f"{where}: {e}"
                continue
            expected = "".join(".*" if piece in written and "delta" in written else piece for piece in PIECES)
            before = ".*" if '"text": ""' in written else ""
            assert re.fullmatch(before + expected, reply.text), where
            for i, call in enumerate(calls):
                is_own = re.search(
                    rf'c{i}|f{i}|"(?:output_)?index": {i + (api != "chat") + (api == "anthropic")}\b', written
                )
                assert is_own or call in [(c.name, c.arguments) for c in reply.tool_calls], where
