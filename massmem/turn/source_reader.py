"""What items name as their sources, pages and files: read once a turn, by massmem itself and by no agent."""

import asyncio
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from urllib.parse import urldefrag

from massmem.config.addresses import is_server_address
from massmem.core.citations import list_addresses
from massmem.core.errors import InputError, MassmemError
from massmem.core.items import Item, Source
from massmem.core.messages import split_question
from massmem.memory.compression import list_stems, select_lines
from massmem.tools.addresses import fetch
from massmem.tools.documents import read_files
from massmem.tools.file_tools import FileTools
from massmem.turn.agent import Agent
from massmem.turn.coordinator import Turn

MOST_SOURCES, MOST_BYTES, SECONDS = 30, 10_000_000, 90.0
_AT_ONCE, _LONGEST_ADDRESS, _SHORTEST_QUOTE, _SHOWN, _MOST_SEARCHED = 4, 500, 6, 800, 300_000
"""A longer address might carry away what a model was shown."""
_WORD, _GAP, _LEFT_OUT = re.compile(r"[^\W_]+"), r"[\W_]+", re.compile(r"\.{3}|\[\.*\]")
_NOT_SAID = re.compile(r"\\?\[\d{1,3}\\?\]|(?<=\])\([^()\s]{1,2000}\)|\u00ad|(?<=\w)-\n(?=[a-z])")
"""Numbers of notes, addresses behind links, and hyphens at the ends of lines."""


async def read_sources(
    turn: Turn, agents: Mapping[str, Agent], lists: Mapping[str, Sequence[Item]], sources: dict[Item, Source]
) -> None:
    """Read what items name, each page once, and put what stands there into `sources` as it comes. lists: by agent."""
    asked, files, _ = split_question(turn.question, turn.attachments)
    named = [urldefrag(address).url for address in list_addresses(asked) if turn.is_own]
    gate, groups = asyncio.Semaphore(_AT_ONCE), dict[tuple[str, str], list[Item]]()
    for agent, item in ((agent, item) for agent, items in lists.items() for item in items):
        groups.setdefault((urldefrag(item.file or item.place).url, agent if item.file else ""), []).append(item)

    async def read_one(place: str, agent: str, items: Sequence[Item]) -> None:
        try:
            async with gate:
                text = next((text for name, text in files if place and f"/{name}".endswith(f"/{place}")), "")
                if not text and agent in agents and agents[agent].config.folders:
                    text = await FileTools(agents[agent].config.folders).read_text(place)
                text = text or await _load_page(place, turn.session_id, is_named=place in named)
            sources.update(await asyncio.to_thread(lambda: {item: look_up(item, text) for item in items}))
        except (MassmemError, ValueError, OSError) as e:
            problem = e.message if isinstance(e, MassmemError) else str(e)
            sources.update({item: Source(item.where, problem=problem) for item in items})

    with suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(read_one(*key, items) for key, items in islice(groups.items(), MOST_SOURCES)))


async def _load_page(address: str, caller: str, *, is_named: bool) -> str:
    if len(address) > _LONGEST_ADDRESS or not is_server_address(address):
        raise InputError("it names no page, and no file that can be read")
    (document,) = await read_files([await fetch(address, MOST_BYTES, is_named=is_named)], caller)
    if not document.text:
        raise InputError("it has no text")
    return document.text


def look_up(item: Item, text: str) -> Source:
    """Return what a text says to an item: around its quote, whose case, blanks and signs do not count, or nearest to
    its words."""
    text, quote = (_NOT_SAID.sub("", unicodedata.normalize("NFKC", part)) for part in (text, item.evidence))
    parts = [words for part in _LEFT_OUT.split(quote) if (words := _WORD.findall(part))]
    places = [_find_words(words, text) for words in parts]
    quoted = min(places) >= 0 if sum(map(len, _WORD.findall(quote))) >= _SHORTEST_QUOTE else None
    if quoted:
        start = max(0, places[0] - _SHOWN // 4)
        passage = f"{'…' * bool(start)}{text[start : start + _SHOWN]}{'…' * (start + _SHOWN < len(text))}"
    else:
        passage = " … ".join(select_lines(text[:_MOST_SEARCHED], list_stems(f"{item.title} {quote}"), 4))[:_SHOWN]
    return Source(item.where, " ".join(passage.split()), quoted)


def _find_words(words: Sequence[str], text: str) -> int:
    """Return where the words stand in their order, -1: nowhere. No part of a longer word or number counts."""
    pattern = rf"(?<![0-9A-Za-z])(?<!\d[.,]){_GAP.join(words)}(?![0-9A-Za-z])(?![.,]\d)"
    match = re.search(pattern, text, re.IGNORECASE)
    return match.start() if match else -1
