from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from massmem.cli.chat.commands import COMMANDS, find_command, format_help, translate_line
from massmem.cli.chat.state import ChatState
from massmem.cli.options import RunOptions
from massmem.cli.run import Invocation
from massmem.config.models import BackendConfig
from massmem.core.errors import InputError
from massmem.core.records import COMMAND_LINE_USER, Owner
from massmem.session.session import Session
from massmem.session.team import Team
from tests.support.sessions import collect, team

NAMES = (
    "help agents model memory remember forget context cost sessions resume rename export compact clear undo debug quit "
    "continue now solo full job retry reword version edit copy fork show correct pin unpin"
)


def test_help_explains_every_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert set(COMMANDS) == set(NAMES.split())
    text = format_help()
    for command in COMMANDS.values():
        assert f"/{command.name}" in text
        assert command.summary.endswith(".")
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("typed", "name"), [("help", "help"), ("res", "resume"), ("und", "undo")])
def test_unique_start_of_a_name_is_enough(typed: str, name: str):
    assert find_command(typed).name == name


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("co", "did you mean /continue or /copy or /context or /cost or /compact or /correct?"),
        ("udno", "/undo"),
        ("", "list all with /help. To ask it, put a space before it"),
        ("x", "/help"),
    ],
)
def test_unknown_command_suggests_similar_ones(typed: str, hint: str):
    with pytest.raises(InputError, match="there is no command") as e:
        find_command(typed)
    assert hint in e.value.hint


@pytest.mark.parametrize(
    ("line", "meant"),
    [("exit", "/quit"), (" Bye ", "/quit"), ("help", "/help"), ("help me", "help me"), ("/help", "/help")],
)
def test_everyday_word_is_the_command_that_it_means(line: str, meant: str):
    assert translate_line(line) == meant


async def refuse_to_reply(prompt: str) -> str:
    raise EOFError(prompt)


@pytest.fixture
async def state(home: Path) -> AsyncIterator[ChatState]:
    """A conversation of two agents with one answered question."""
    config = team({"ann": {"answer": "Yes."}, "bob": {"answer": "Yes."}})
    opened = await Team.open(config, home=home / ".massmem")
    await opened.start()
    session = await Session.find(opened, owner=COMMAND_LINE_USER)
    await collect(session.ask("Is it so?"))
    invocation = Invocation(RunOptions(), "plain", config, home / ".massmem", None, None, None)
    conversation = ChatState(invocation, opened, session, refuse_to_reply)
    yield conversation
    await conversation.close()


async def test_sessions_of_other_owners_are_not_offered(state: ChatState):
    other = await Session.find(state.team, owner=Owner("alice"))
    await collect(other.ask("What is my secret?"))
    await other.close()
    offers = await COMMANDS["resume"].complete(state, [])
    assert state.session.id in offers
    assert other.id not in offers
    assert "What is my secret?" not in offers


async def test_retry_with_an_impossible_model_changes_no_agent(state: ChatState):
    await state.change_backends({"bob": BackendConfig(type="ollama", model="small")})
    with pytest.raises(InputError, match="a scripted model cannot be chosen here"):
        await COMMANDS["retry"].run(state, "scripted/other")
    assert [agent.backend.model for agent in state.team.agents] == ["", "small"]
