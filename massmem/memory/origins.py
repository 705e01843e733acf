"""Where the words of a memory come from, as a text: "user", "agent", "import", "tool:NAME". Pure.

"" stands for unknown: older versions did not note it. What an agent repeats of the result of a tool is the tool's, see
massmem.memory.tool_words.
"""

import re
from collections.abc import Collection

AGENT, IMPORT, TOOL = "agent", "import", "tool"
"""Origins beside persistent.USER. TOOL is followed by a colon and the tool's name, except in filters."""

_LONGEST_NAME = 24
"""Characters of a tool's name in a label."""
_NAME_SIGN = re.compile(r"[^A-Za-z0-9_.-]")


def name_tool_origin(tool: str) -> str:
    """Return the origin of what a tool said; "" without a tool."""
    return f"{TOOL}:{tool}" if tool else ""


def find_tool_name(origin: str) -> str:
    """Return the name of the tool that an origin names, "" for another origin."""
    return origin.removeprefix(f"{TOOL}:") if origin.startswith(f"{TOOL}:") else ""


def mark_origin(origin: str) -> str:
    """Return how a label names an origin, in a few tokens: "tool fetch"; "" for what is not from a tool alone."""
    name = find_tool_name(origin)
    return shorten_tool_name(name) if name else ""


def shorten_tool_name(name: str) -> str:
    """Return "tool NAME" with signs that cannot end a label, and without the name of the tool's server."""
    plain = _NAME_SIGN.sub("", name.rpartition("__")[2])[:_LONGEST_NAME]
    return f"tool {plain}" if plain else "tool"


def is_from(origin: str, asked: str) -> bool:
    """Return whether an origin is the one that is asked for; TOOL asks for any tool."""
    return origin == asked or (asked == TOOL and bool(find_tool_name(origin)))


def choose_origin(origins: Collection[str]) -> str:
    """Return the origin of one statement that several made: the user vouches for it, an agent does not."""
    for origin in ("user", *sorted(origin for origin in origins if find_tool_name(origin)), IMPORT, AGENT):
        if origin in origins:
            return origin
    return ""
