"""What an agent does with its tools, as events of its turn (see massmem.events)."""

from typing import Literal

from massmem.messages import Usage
from massmem.session_events import EventBase


class ToolCalled(EventBase):
    """The agent's model calls a tool, which runs once this is on disk. Deltas of the agent before it are of this reply.

    call_id: unique for an agent in its turn. batch: which reply with calls of the step it is of, from 1; calls of one
    batch run at once. text, reasoning: what the reply said beside its calls, with the first of them. arguments: a JSON
    object as text, or what the model wrote instead of one. usage: of the step's requests so far.
    """

    type: Literal["tool_called"] = "tool_called"
    agent_id: str
    round: int
    call_id: str
    batch: int
    name: str
    arguments: str
    text: str = ""
    reasoning: str = ""
    usage: Usage


class ToolReturned(EventBase):
    """What a tool gave back to an agent, word for word; also one that ran outside a turn. name: of the tool.

    call_id: of the `tool_called` that it is the result of, "" outside a turn. failed: the text says what went wrong.
    recorded: it is remembered as a message of its own (memory.recording.record_all_tool_calls).
    """

    type: Literal["tool_returned"] = "tool_returned"
    agent_id: str
    round: int
    name: str
    content: str
    call_id: str = ""
    failed: bool = False
    recorded: bool = True
