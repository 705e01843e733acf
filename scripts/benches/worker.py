"""A model that does a job with tools and knows only its prompt, behind the OpenAI protocol on loopback.

It is honest and a bit dull: it lists the folder, reads the next file of which its prompt does not tell that it was
read, and answers with the findings that stand in its prompt. It knows file names, the argument `path`, two tools that
list files, and what a finding looks like; of massmem it knows nothing but how a request for a summary and an answer to
vote for begin.

The name of the model says how it works, words with a hyphen between:

    notes     it writes beside its calls what it has found in the last results; without: it only calls
    poor      its summaries are two sentences; without: all findings that it is shown
    eight     it reads eight files in one reply; without: one
    back      it reads earlier results again where a finding is missing and a tool `read_earlier` is offered
    last      it begins with the last file

`python -m scripts.benches.worker WINDOW LOG DELAY` prints its port and serves until it is ended. WINDOW: tokens of
prompt and reply. LOG: gets a line of JSON for each request. DELAY: seconds that every reply takes.
"""

import asyncio
import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from massmem.memory.tokens import count_tokens
from scripts.benches.model_server import NOT_FOUND, is_chat, make_call, make_response, make_stream, serve

POOR_SUMMARY = "The assistant reads the files in a folder and collects the retry limits. The work goes on."

_FILE = r"([\w-]+)\.md\b"
_LISTED = re.compile(rf"(?:\[FILE\] |^docs/(?=[\w.-]+$)){_FILE}", re.MULTILINE)
"""A line of a listing."""
_SENTENCE = re.compile(r"retry limit (?:of|for) (?:the )?(?:module )?\W?([\w-]+)\W{0,2}(?: module)?[^\d\n.]{0,20}(\d+)")
_SUMMED = re.compile(r"Retry limits: ([^\n]*)")
_TELLS_OF_READING = re.compile(
    r"\b(?:read|reads|read_file|opened|covered|processed|done|finished|retry limit|no limit in what)\b", re.IGNORECASE
)
_NOT_READ = re.compile(
    r"\b(?:unread|unknown|remaining|next|to do|failed|refused|(?:to|not|never)(?: be| yet)? (?:read|known))\b",
    re.IGNORECASE,
)
_FAILED = re.compile(r"\b(?:failed|error|not known|unknown|stopped|refused|there is no)\b", re.IGNORECASE)
_EARLIER = re.compile(r"read_earlier\W*(?:message\W*)?(\w+)\W+(?:part\W*)?(\d+)")
_ANSWER = re.compile(r'<answer label="(\w+)">(.*?)</answer>', re.DOTALL)
_OF_PARTS = re.compile(r"\b(\d+) of (\d+)\b")

_LISTERS = {"list_directory": "path", "list_files": "path_glob"}
"""Tools that list a folder, and the argument that names it."""

_PER_MESSAGE, _PER_REPLY = 4, 3
_MOST_PARTS = 40


@dataclass(frozen=True, slots=True)
class Reply:
    """calls: names of tools and their arguments."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()


@dataclass
class Prompt:
    """A request, as its reader understands it."""

    body: Mapping[str, Any]
    calls: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict[str, tuple[str, dict[str, Any]]])
    """Name and arguments of the calls that stand in it, by id."""
    results: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Ids of calls and what came back."""
    prose: str = ""
    """All that is no result of a tool."""
    fresh: int = 0
    """Number of the results that came in last."""

    def __post_init__(self) -> None:
        texts: list[str] = []
        for message in self.body["messages"]:
            content = message.get("content") or ""
            if message["role"] == "tool":
                self.results.append((message["tool_call_id"], content))
                self.fresh += 1
                continue
            texts.append(content)
            self.fresh = 0
            for call in message.get("tool_calls") or ():
                function = call["function"]
                self.calls[call["id"]] = (function["name"], json.loads(function["arguments"]))
        self.prose = "\n".join(texts)

    @property
    def system(self) -> str:
        first = self.body["messages"][0]
        return first["content"] if first["role"] == "system" else ""

    @cached_property
    def tools(self) -> dict[str, Mapping[str, Any]]:
        """The parameters of the tools that may be called, by the last part of their names, and their full names."""
        if self.body.get("tool_choice") == "none":
            return {}
        functions = (tool["function"] for tool in self.body.get("tools") or ())
        return {function["name"].rpartition("__")[2]: function for function in functions}

    @cached_property
    def text(self) -> str:
        return "\n".join((self.prose, *(text for _, text in self.results)))

    @cached_property
    def findings(self) -> dict[str, int]:
        """Module -> limit, from all that stands here."""
        return find_limits(self.text)

    @cached_property
    def file_names(self) -> list[str]:
        return list(dict.fromkeys(_LISTED.findall(self.text)))

    @property
    def holds_listing(self) -> bool:
        """Whether a listing stands here as it came back, not what became of it in a summary."""
        return any(_LISTED.search(text) for call, text in self.results if self._name_of(call) in _LISTERS)

    @cached_property
    def read(self) -> set[str]:
        """Names of the files that were read, as far as this prompt tells."""
        return {*self._read_here, *find_reads_in_text(self.prose)}

    @cached_property
    def _read_here(self) -> dict[str, str]:
        """Name of a file -> the result of reading it."""
        read: dict[str, str] = {}
        for call, text in self.results:
            path = self.calls.get(call, ("", {}))[1].get("path", "")
            if self._name_of(call) == "read_file" and not (_FAILED.search(text[:200]) and not find_limits(text)):
                read |= dict.fromkeys(re.findall(_FILE, path), text)
        return read

    def write_notes(self) -> str:
        """Return what was found in the results that came in last."""
        lines: list[str] = []
        for call, text in self.results[len(self.results) - self.fresh :]:
            if self._name_of(call) not in ("read_file", "read_earlier"):
                continue
            limits = find_limits(text)
            what = self.calls[call][1].get("path", "earlier result")
            lines += [f"{what}: the retry limit of module {name} is {limit}" for name, limit in limits.items()]
            if not limits:
                lines.append(f"{what}: no limit in what I have seen")
        return "\n".join(lines)

    def next_part(self) -> tuple[str, int] | None:
        """Return the message and the part of it that may hold a finding which is missing."""
        if len(self.findings) >= len(self.read):
            return None
        for name in sorted(self.read):
            place = None if self._shows_finding(name) else self._locate(name)
            if place is None:
                continue
            message, part = place
            if seen := self._parts_of(message):
                if any(map(find_limits, seen.values())):
                    continue
                last, text = max(seen.items())
                ended = (_FAILED.search(text[:200]) is not None and len(text) < 600) or last >= _MOST_PARTS
                numbers = _OF_PARTS.search(text)
                if ended or (numbers is not None and numbers[1] == numbers[2]):
                    continue
                part = last + 1
            return message, part
        return None

    def _shows_finding(self, name: str) -> bool:
        """Whether what was found in this file stands here beside its name."""
        beside = re.findall(rf"\b{name}\.md\b((?:(?![\w-]+\.md\b).)*)", self.prose)
        return any(map(find_limits, [self._read_here.get(name, ""), *beside]))

    def _locate(self, name: str) -> tuple[str, int] | None:
        """Return the message that holds this file, and the part to begin with."""
        if found := _EARLIER.search(self._read_here.get(name, "")):
            return found[1], int(found[2])
        for line in self.prose.splitlines():
            segment = re.search(rf"\b{name}\.md\b((?:(?![\w-]+\.md\b).)*)", line)
            if segment is None:
                continue
            if found := _EARLIER.search(segment[1]):
                return found[1], int(found[2])
            if found := re.match(r"\W{0,4}(?:message |id |#|m)?(\d+)\b(?! ?[kKM]?B| char| token| line)", segment[1]):
                return found[1], 1
        return None

    def _parts_of(self, message: str) -> dict[int, str]:
        """Part -> text, of those that were read again."""
        parts: dict[int, str] = {}
        for call, text in self.results:
            if self._name_of(call) == "read_earlier":
                values = list(self.calls[call][1].values())
                if values and str(values[0]) == message:
                    parts[int(values[1]) if len(values) > 1 else 1] = text
        for line in self.prose.splitlines():
            if "left out" not in line:
                parts |= {int(p): "" for m, p in _EARLIER.findall(line) if m == message}
        return parts

    def _name_of(self, call: str) -> str:
        return self.calls.get(call, ("", {}))[0].rpartition("__")[2]


def find_limits(text: str) -> dict[str, int]:
    """Return module -> retry limit, wherever the text says one."""
    pairs: list[tuple[str, str]] = _SENTENCE.findall(text)
    for line in _SUMMED.findall(text):
        pairs += re.findall(r"([a-z][\w-]+) (\d+)", line)
    return {name: int(limit) for name, limit in pairs}


def find_reads_in_text(text: str) -> set[str]:
    """Return the names of files of which lines of the text tell that they were read. A listing tells of none."""
    read: set[str] = set()
    heading = False
    for line in _LISTED.sub("", text).splitlines():
        tells = _TELLS_OF_READING.search(line) is not None
        if not tells:
            heading = heading and line.startswith((" ", "-", "*", "\t"))
        if not (tells or heading):
            continue
        for segment in line.split(";"):
            read |= set(re.findall(_FILE, _NOT_READ.split(segment)[0]))
        heading = heading or line.rstrip().endswith(":")
    return read


def act(body: Mapping[str, Any]) -> Reply:
    """Return what the model does next. body: of a request for a chat completion."""
    prompt, manner = Prompt(body), body["model"].split("-")
    if is_summary(body):
        limits = ", ".join(f"{name} {limit}" for name, limit in prompt.findings.items())
        return Reply(POOR_SUMMARY if "poor" in manner or not limits else f"Retry limits: {limits}")
    if "vote" in prompt.tools:
        return _vote(prompt)
    calls = _choose_calls(prompt, manner)
    if calls:
        return Reply(prompt.write_notes() if "notes" in manner else "", calls)
    names = sorted(prompt.findings, reverse="last" in manner)
    lines = [f"The retry limit of {name} is {prompt.findings[name]}." for name in names]
    return Reply("\n".join(lines) or "I have found nothing.")


def is_summary(body: Mapping[str, Any]) -> bool:
    return Prompt(body).system.startswith("Summarise")


def _choose_calls(prompt: Prompt, manner: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    tools = prompt.tools
    if "read_file" not in tools:
        return []
    if "back" in manner and "read_earlier" in tools and (place := prompt.next_part()):
        properties = tools["read_earlier"]["parameters"]["properties"]
        whole = [properties[name].get("type") == "integer" for name in properties]
        values = (int(value) if isint else value for value, isint in zip(place, whole, strict=False))
        return [(tools["read_earlier"]["name"], dict(zip(properties, values, strict=False)))]
    unread = [name for name in prompt.file_names if name not in prompt.read]
    if unread:
        unread = unread[::-1] if "last" in manner else unread
        paths = [f"docs/{name}.md" for name in unread[: 8 if "eight" in manner else 1]]
        return [(tools["read_file"]["name"], {"path": path}) for path in paths]
    lister = next(name for name in _LISTERS if name in tools)
    return [] if prompt.holds_listing else [(tools[lister]["name"], {_LISTERS[lister]: "docs"})]


def _vote(prompt: Prompt) -> Reply:
    vote = prompt.tools["vote"]
    choices = next(p["enum"] for p in vote["parameters"]["properties"].values() if "enum" in p)
    sizes = {label: len(find_limits(text)) for label, text in _ANSWER.findall(prompt.text) if label in choices}
    best = max(choices, key=lambda label: sizes.get(label, 0))
    values = {"reason": f"It has {sizes.get(best, 0)} limits, more than the others.", "choice": best}
    return Reply("", [(vote["name"], values)])


# The server


def count_prompt(body: Mapping[str, Any]) -> int:
    """Return the tokens of a request: messages, calls and tools."""
    tokens = _PER_REPLY
    for message in body["messages"]:
        tokens += _PER_MESSAGE + count_tokens(message.get("content") or "")
        for call in message.get("tool_calls") or ():
            tokens += count_tokens(call["function"]["name"]) + count_tokens(call["function"]["arguments"])
    extras = [body[name] for name in ("tools", "response_format") if name in body]
    return tokens + sum(count_tokens(json.dumps(extra, separators=(",", ":"))) for extra in extras)


def stream(reply: Reply, prompt: int, most: int) -> tuple[bytes, int]:
    """Return the reply as it is streamed, and its tokens. most: tokens of its text."""
    text, finish = reply.text, "tool_calls" if reply.calls else "stop"
    while count_tokens(text) > most:
        text, finish = text[: len(text) * most // count_tokens(text) - 1], "length"
    deltas: list[dict[str, Any]] = [{"content": text[i : i + 200]} for i in range(0, len(text), 200)]
    for index, (name, values) in enumerate(reply.calls):
        deltas.append(make_call(name, values, index, f"c{time.time_ns()}_{index}"))
    tokens = count_tokens(text) + sum(count_tokens(name + json.dumps(values)) for name, values in reply.calls)
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
    return make_stream(deltas, finish, usage), tokens


@dataclass(slots=True)
class Model:
    """The server's part of a model: its window, and the log of what it was sent."""

    window: int
    log: Path
    delay: float
    lock: threading.Lock = field(default_factory=threading.Lock)

    def respond(self, body: Mapping[str, Any]) -> bytes:
        """Return the response to a request."""
        begin, prompt = time.time(), count_prompt(body)
        most = min(self.window - prompt, body.get("max_completion_tokens") or body.get("max_tokens") or self.window)
        seen = {"model": body["model"], "summary": is_summary(body), "prompt": prompt, "at": begin}
        if most <= 0:
            self._note(seen | {"refused": True, "reply": 0})
            message = (
                f"This model's maximum context length is {self.window} tokens. However, your messages resulted in "
                f"{prompt} tokens. Please reduce the length of the messages."
            )
            error = {"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"}
            refusal = json.dumps({"error": error | {"param": "messages"}}).encode()
            return make_response(refusal, status="400 Bad Request")
        content, tokens = stream(act(body), prompt, most)
        time.sleep(self.delay)
        self._note(seen | {"refused": False, "reply": tokens, "end": time.time()})
        return content

    def _note(self, seen: Mapping[str, Any]) -> None:
        with self.lock, self.log.open("a") as file:
            file.write(json.dumps(seen) + "\n")


def read_log(log: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the requests that a model has written to its log."""
    if log.exists():
        yield from map(json.loads, log.read_text().splitlines())


async def main() -> None:
    model = Model(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))

    async def respond(head: str, body: bytes) -> bytes:
        return await asyncio.to_thread(model.respond, json.loads(body)) if is_chat(head) else NOT_FOUND

    await serve(respond, lambda: None)


if __name__ == "__main__":
    asyncio.run(main())
