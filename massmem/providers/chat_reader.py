"""Replies of chat completions, from servers and from the model in this process."""

from collections.abc import Collection, Iterator
from typing import ClassVar, cast

from massmem.core.messages import ChatRequest, Chunk
from massmem.providers.dialects import GIVEN_WITH_CALLS, find_state, join_state
from massmem.providers.failures import ErrorContext, find_failure
from massmem.providers.marks import TemplateEnd
from massmem.providers.normaliser import Json, ReplyReader


class ChatReader(ReplyReader):
    """Reads chunks of chat completions, or one whole completion."""

    marks: ClassVar[Collection[str]] = ("choices", "usage")

    def __init__(self, request: ChatRequest, context: ErrorContext) -> None:
        super().__init__(request, context)
        self._ending = TemplateEnd()

    def _read(self, event: Json) -> Iterator[Chunk]:
        self._add_counts(event.get("usage"))
        if self.cited.form == "numbers":
            self._read_pages(event)
        for choice in self._objects(event.get("choices"), "choice"):
            self._add_counts(choice.get("usage"))  # Moonshot's place
            if error := find_failure({"error": choice.get("error")}):  # OpenRouter's
                raise error.error(self._context)
            self._end(choice.get("finish_reason"))
            # A whole completion has a message, an older one its text; some servers end a stream with it.
            delta = self._object(choice.get("delta"), "delta")
            message = self._object(choice.get("message"), "message") or {"content": choice.get("text")}
            if delta or not self.length:
                yield from self._read_delta(delta or message)
            elif message.get("annotations"):
                self._read_annotations(message)

    def _read_delta(self, delta: Json) -> Iterator[Chunk]:
        # DeepSeek, vLLM and xAI say reasoning_content; OpenRouter, Groq and Ollama say reasoning.
        yield from self._write_parts(delta.get("reasoning_content") or delta.get("reasoning"), is_thought=True)
        yield from self._write_parts(delta.get("content"))
        self._read_annotations(delta)
        self._refusal += self._text(delta.get("refusal"), "refusal")
        join_state(self._state.setdefault("message", {}), {name: delta.get(name) for name in GIVEN_WITH_CALLS})
        legacy = self._objects(delta.get("function_call"), "function call")
        calls = [*self._objects(delta.get("tool_calls"), "tool call"), *legacy]
        for number, call in enumerate(calls):
            function = self._object(call.get("function"), "function") or call
            place = self._find_place(call.get("index"), number if len(calls) > 1 else None)
            state = self._add_call(place, call.get("id"), function.get("name"), function.get("arguments"))
            for part, fields in (("call", call), ("function", function)):
                state[part] = {**state.get(part, {}), **find_state(fields)}

    def _read_annotations(self, fields: Json) -> None:
        for annotation in self._objects(fields.get("annotations"), "annotation"):
            self._read_annotation(annotation)

    def _read_pages(self, event: Json) -> None:
        """Note the pages that Perplexity lists beside the text; older models list their addresses only."""
        pages, addresses = event.get("search_results"), event.get("citations")
        if isinstance(pages, list) and pages:
            self.cited.add_pages(self._objects(cast("list[object]", pages), "search result"))
        elif isinstance(addresses, list):
            self.cited.add_pages([{"url": address} for address in cast("list[object]", addresses)])
