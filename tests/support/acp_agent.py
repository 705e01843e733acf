"""An agent program for tests, which speaks the Agent Client Protocol: `python -m tests.support.acp_agent HOW [FILE]`.

HOW names what it does with a prompt; everything but `sdk` is written by hand, since the SDK refuses to misbehave. What
it is sent is appended to FILE, a line of JSON each.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MODES = {"currentModeId": "default", "availableModes": [{"id": "default", "name": "D"}, {"id": "plan", "name": "P"}]}
USAGE = {"inputTokens": 3_000, "outputTokens": 20, "totalTokens": 3_020}


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(message: dict[str, Any]) -> None:
    if len(sys.argv) > 2:
        with Path(sys.argv[2]).open("a") as file:
            file.write(json.dumps(message) + "\n")


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    message = json.loads(line)
    note(message)
    return message


def update(session: str, **fields: Any) -> None:
    write({"method": "session/update", "params": {"sessionId": session, "update": fields}})


def say(session: str, text: str) -> None:
    update(session, sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the client and return the reply."""
    write({"id": "ours", "method": method, "params": params})
    while (reply := read()).get("id") != "ours":
        pass
    return reply


def request(session: str, kind: str, **fields: Any) -> bool:
    """Ask for permission; return whether it is given."""
    call = {"toolCallId": f"c_{kind}_{time.monotonic_ns()}", "kind": kind, **fields}
    update(session, sessionUpdate="tool_call", status="in_progress", **call)
    options = [
        {"optionId": f"o_{kind}", "kind": kind, "name": kind} for kind in ("allow_always", "allow_once", "reject_once")
    ]
    reply = ask("session/request_permission", {"sessionId": session, "toolCall": call, "options": options})
    return reply["result"]["outcome"]["optionId"] == "o_allow_once"


def carry_out(how: str, session: str) -> None:
    """Change the folder, as far as that is allowed; `how` names what with."""
    for word in how.split():
        match word:
            case "edit" | "outside" | "link" | "secret" | "git":
                name = {
                    "edit": "a.py",
                    "outside": "../beside.py",
                    "link": "link/b.py",
                    "secret": ".env",
                    "git": ".git/config",
                }
                path = Path.cwd() / name[word]
                if request(session, "edit", locations=[{"path": str(path)}]):
                    path.write_text("x = 2\n")
            case "anything":
                request(session, "edit", title="anything")
            case "run":
                if request(session, "execute", rawInput={"command": "touch made"}):
                    Path("made").touch()
            case "delete":
                if request(session, "delete", rawInput={"file_path": "old.py"}):
                    Path("old.py").unlink()
            case "write":
                for name in ("tests/b.py", "../c.py", ".env", "link/d.py", ".git/x"):
                    reply = ask("fs/write_text_file", {"sessionId": session, "path": name, "content": "y = 1\n"})
                    say(session, f"{name} {'error' if 'error' in reply else 'written'}. ")
            case "die":
                sys.stderr.write("panic: out of luck\n")
                sys.stderr.flush()
                sys.exit(3)
            case "wait":
                time.sleep(600)
            case _:
                pass


def do(how: str, session: str, text: str) -> dict[str, Any]:
    """Do what a prompt asks for; return the result."""
    if how.startswith("carry"):
        if "Carry it out now" in text:
            carry_out(how, session)
            say(session, "I did all that.")
        elif "JSON Schema" in text:
            say(session, json.dumps({"reason": "It is right.", "action": "vote", "choice": "A"}))
        else:
            say(session, "Set x to 2 in a.py.")
        return {"stopReason": "end_turn", "usage": USAGE}
    match how:
        case "die":
            sys.stderr.write("panic: out of luck\n")
            sys.stderr.flush()
            sys.exit(3)
        case "silent":
            time.sleep(600)
        case "flood":
            while True:
                say(session, "x" * 100_000)
        case "endless line":
            while True:
                sys.stdout.write("x" * 1_000_000)
        case "noise":
            sys.stdout.write('Debugger attached.\n[1, 2]\n"x"\n\n{"id": {}}\n{"id": 5, "result": null}\n')
            update(session, sessionUpdate="of_next_year", content=7)
            update(session, sessionUpdate="agent_message_chunk", content=["?"])
            say(session, "It is 4.")
        case "permission":
            call = {"toolCallId": "c1", "title": "touch x", "kind": text.split()[0], "rawInput": {"command": "touch x"}}
            options = [{"optionId": f"o_{kind}", "kind": kind, "name": kind} for kind in ("allow_once", "reject_once")]
            reply = ask("session/request_permission", {"sessionId": session, "toolCall": call, "options": options})
            say(session, reply["result"]["outcome"]["optionId"])
        case "read":
            reply = ask("fs/read_text_file", {"sessionId": session, "path": text.split()[0]})
            say(session, reply["result"]["content"] if "result" in reply else str(reply["error"]["data"]))
        case "write":
            refused = "error" in ask("fs/write_text_file", {"sessionId": session, "path": "x", "content": "y"})
            try:
                Path(text.split()[0]).write_text("written")
                say(session, "wrote")
            except OSError as e:
                say(session, f"refused by the client: {refused}; {e.strerror}")
        case "nothing":
            pass
        case "requests":
            update(session, sessionUpdate="agent_message_chunk", content={}, _meta={"usage": USAGE})
            update(session, sessionUpdate="agent_message_chunk", content={}, _meta={"usage": USAGE})
            say(session, "It is 4.")
            return {"stopReason": "end_turn"}
        case "calls" if "<result>" in text:
            say(session, text[text.index("<result>") :].splitlines()[1])
        case "calls":
            listed = text.partition("not among your own")[2]
            name = next((word for word in listed.replace("(", " ").split() if word.startswith("mcp__")), "none")
            say(session, json.dumps({"action": name, "arguments": {"text": "hello"}}))
        case "variable":
            say(session, os.environ.get(text.split()[0], "not set"))
        case _:
            update(session, sessionUpdate="agent_thought_chunk", content={"type": "text", "text": "Let me see."})
            call = {"toolCallId": "c1", "kind": "read", "locations": [{"path": f"{Path.cwd()}/src/a.py"}]}
            update(session, sessionUpdate="tool_call", status="in_progress", **call)
            say(session, "It is ")
            say(session, "4.")
    return {"stopReason": "end_turn", "usage": USAGE if how != "no usage" else None}


def serve(how: str) -> None:
    while True:
        message = read()
        number: Any = message.get("id")
        params: dict[str, Any] = message.get("params") or {}
        match message.get("method"):
            case "initialize" if how == "next version":
                write({"id": number, "result": {"protocolVersion": 2}})
            case "initialize":
                takes = {"image": True, "embeddedContext": True} if how == "pictures" else {}
                abilities = {"promptCapabilities": takes}
                write({"id": number, "result": {"protocolVersion": 1, "agentCapabilities": abilities}})
            case "session/new" if how == "login":
                write({"id": number, "error": {"code": -32_000, "message": "Authentication required"}})
            case "session/new":
                result = {"sessionId": f"s{number}", "modes": None if how == "no modes" else MODES}
                write({"id": number, "result": result})
            case "session/prompt":
                result = do(how, params["sessionId"], params["prompt"][0]["text"])
                write({"id": number, "result": result})
            case _ if number is not None:
                write({"id": number, "result": {}})
            case _:
                pass


def run_sdk() -> None:
    """Run an agent as the SDK has them, whose import takes a second: it says what it was asked."""
    from acp import PromptResponse, run_agent, update_agent_message_text
    from acp.schema import InitializeResponse, NewSessionResponse

    class SdkAgent:
        def on_connect(self, conn: Any) -> None:
            self.client = conn

        async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
            return InitializeResponse(protocol_version=protocol_version)

        async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
            return NewSessionResponse(session_id=cwd)

        async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
            await self.client.session_update(session_id, update_agent_message_text(f"You said: {prompt[0].text}"))
            await self.client.session_update(session_id, update_agent_message_text("!"))
            return PromptResponse(stop_reason="end_turn")

    agent: Any = SdkAgent()
    asyncio.run(run_agent(agent))


if __name__ == "__main__":
    if sys.argv[1] == "sdk":
        run_sdk()
    else:
        serve(sys.argv[1])
