"""Who said a memory, and whose words it rests on, as texts: "user", "agent", "import", "outside", "tool:NAME". Pure.

The result of a tool is said by the tool. What an agent repeats of it is said by the agent and rests on the tool's
words, see massmem.memory.tool_words. "" stands for unknown: older versions did not note it.
"""

import re
from collections.abc import Collection

AGENT, IMPORT, OUTSIDE, TOOL = "agent", "import", "outside", "tool"
"""Origins beside persistent.USER. OUTSIDE: another program with mem0 wrote it into the collection. TOOL is followed by
a colon and the tool's name, except in filters."""

_LONGEST_NAME, _LONGEST_CALL = 24, 100
"""Characters of a tool's name in a label, and of a call."""
_NAME_SIGN = re.compile(r"[^A-Za-z0-9_.-]")
_CALL_SIGN = re.compile(r"[^\w .,:'+/@#=&?%~*-]")


def name_tool_origin(tool: str) -> str:
    """Return the origin of what a tool said; "" without a tool."""
    return f"{TOOL}:{tool}" if tool else ""


def find_tool_name(origin: str) -> str:
    """Return the name of the tool that an origin names, "" for another origin."""
    return origin.removeprefix(f"{TOOL}:") if origin.startswith(f"{TOOL}:") else ""


def mark_source(rests_on: str, call: str = "") -> str:
    """Return what a label says of a tool: its call, or "quoting fetch" of words that somebody took from it.

    It has no sign that can end a label.
    """
    if call:
        return f"tool {_CALL_SIGN.sub('', call)[:_LONGEST_CALL].rstrip()}"
    name = find_tool_name(rests_on)
    return f"quoting {_shorten(name)}".rstrip() if name else ""


def shorten_tool_name(name: str) -> str:
    """Return "tool NAME" with signs that cannot end a label, and without the name of the tool's server."""
    return f"tool {_shorten(name)}".rstrip()


def _shorten(name: str) -> str:
    return _NAME_SIGN.sub("", name.rpartition("__")[2])[:_LONGEST_NAME]


def is_from(origin: str, rests_on: str, asked: str) -> bool:
    """Return whether one of the two is the origin that is asked for; TOOL asks for any tool."""
    return asked in (origin, rests_on) or (asked == TOOL and bool(rests_on))


def choose_origin(origins: Collection[str]) -> str:
    """Return who said what several said: the user vouches for it, an agent does not."""
    return next((origin for origin in ("user", IMPORT, OUTSIDE, AGENT) if origin in origins), "")
