import io
import re
from datetime import timedelta
from io import StringIO

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from massmem.core.events import Event
from massmem.render.live import LiveRenderer, Screen, build_frame, render_markdown
from massmem.render.turn_view import TurnView
from tests.support.sample_turn import (
    START,
    answer,
    ballot,
    begin,
    compression,
    event,
    give_names,
    measurement,
    other_ends,
    tool_call,
    tool_result,
    whole_turn,
)


def render(events: list[Event]) -> str:
    view, stream = TurnView(), io.StringIO()
    renderer = LiveRenderer(view, Console(file=stream, force_terminal=True, width=80, height=24))
    for e in events:
        view.feed(e)
        renderer.feed(e)
    renderer.close()
    return stream.getvalue()


def fold(*events: Event) -> TurnView:
    view = TurnView()
    for e in events:
        view.feed(e)
    return view


def frame(view: TurnView, seconds: float = 0, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain for line in build_frame(view, START + timedelta(seconds=seconds), width, height)]


def busy_view(number: int, *, presenting: bool = True) -> TurnView:
    """Return a view in which agents stream, have answered, vote and present, in wide characters too."""
    agents = [f"agent_{i:02}" for i in range(number)]
    view = fold(begin(*agents, question="日本語の長い質問 " * 20), event(0.1, "round_started", round=1, agents=agents))
    for i, agent in enumerate(agents):
        view.feed(event(0.2, "agent_started", agent_id=agent, round=1, step="answer"))
        text = ("streamed 日本語 " * 60)[: 30 * i]
        view.feed(event(0.3, "agent_delta", agent_id=agent, round=1, channel="text", text=text))
        if i % 2 == 0:
            view.feed(measurement(0.35, 1_000 * (i + 1), agent=agent, window=1_000 if i == 4 else 128_000))
        if i % 3 == 0:
            view.feed(answer(0.4, agent, "an answer " * 30))
        if i % 7 == 0:
            view.feed(ballot(0.5, agent, agents[0]))
    if presenting:
        view.feed(event(1.0, "agent_started", agent_id=agents[0], round=2, step="present"))
        text = "最終的な answer\n" * 40
        view.feed(event(1.1, "agent_delta", agent_id=agents[0], round=2, channel="text", text=text))
    return view


def test_failure_winner_and_summary_stay_after_the_view():
    output = render(whole_turn())
    assert "eve failed: the key was refused" in output
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l"), "the cursor is visible"
    assert "ann wins: 2 of 2 votes" in output.splitlines()[-3]
    assert "3 rounds" in output.splitlines()[-2]


def test_one_renderer_shows_two_turns_in_a_row():
    output = render([*whole_turn(), begin("zoe", at=9), other_ends()[2]])
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") == 2


def test_tool_results_are_not_shown():
    assert "secret" not in render([begin("ann"), tool_result(1)])


@pytest.mark.parametrize(("attempt", "shown"), [(2, "try 2: 429"), (3, "try 3: 429"), (0, "429")])
def test_agent_line_counts_requests_that_were_sent(attempt: int, shown: str):
    started = event(0, "agent_started", agent_id="ann", round=1, step="answer")
    retry = event(0.1, "agent_retrying", agent_id="ann", round=1, error="429", delay=1.0, attempt=attempt)
    (line,) = [line for line in frame(fold(begin("ann"), started, retry)) if "ann" in line]
    assert shown in line
    assert ("try " in line) == (attempt > 0), "nothing was sent while the server wants no requests"


def test_agent_line_names_running_tools():
    started = event(0, "agent_started", agent_id="ann", round=1, step="answer")
    view = fold(begin("ann"), started, tool_call(0.1), tool_call(0.1, number=2, name="list"))
    (line,) = [line for line in frame(view) if "ann" in line]
    assert "tools" in line
    assert "call 2, 120 tokens: read_file a secret" in line
    (line,) = [line for line in frame(view, width=140) if "ann" in line]
    assert line.rstrip().endswith("call 2, 120 tokens: read_file a secret of the call, list a secret of the call")


def test_agent_line_shows_its_work_while_the_model_thinks():
    started = event(0, "agent_started", agent_id="ann", round=1, step="answer")
    returned = tool_result(1).model_copy(update={"call_id": "call_r1b1n1"})
    view = fold(begin("ann"), started, tool_call(0.1), returned, compression(2))
    (line,) = [line for line in frame(view, width=140) if "ann" in line]
    assert "thinking" in line
    assert line.rstrip().endswith("call 1, 120 tokens, compressed 1 time: read_file a secret of the call")
    view.feed(event(3, "agent_delta", agent_id="ann", round=1, channel="text", text="The limit is 47."))
    assert "The limit is 47." in "".join(frame(view))


def test_context_column_appears_once_a_context_is_measured():
    view = fold(begin("ann", "bob"))
    assert not any("ctx" in line for line in frame(view))
    shares: list[str] = []
    for e in (measurement(1, 96_000), compression(2), measurement(3, 45_000, source="api")):
        view.feed(e)
        ann, bob = frame(view)[1:3]
        shares.append(ann.split(" tok ")[1].split(" ctx")[0].strip())
        assert "ctx" not in bob
    assert shares == ["75%", "40%", "35%"]


def test_recalled_column_appears_once_memories_are_recalled_and_there_is_room():
    view = fold(begin("ann", "bob", "eve"), measurement(0, 2_000), measurement(0, 2_000, agent="bob"))
    assert not any("mem" in line for line in frame(view))
    view.feed(measurement(1, 2_000, recalled=1_240))
    ann, bob, eve = frame(view)[1:4]
    assert " 2% ctx  1.2k mem" in ann
    assert " 2% ctx     0 mem" in bob
    assert "mem" not in eve
    assert not any("mem" in line for line in frame(view, width=60))


def test_wide_headline_names_the_key_for_the_answer_now_once_there_is_one():
    view = fold(begin("ann", "bob"))
    assert "Ctrl-N" not in frame(view, width=120)[0]
    view.feed(answer(1, "ann", "Blue."))
    assert "Ctrl-N: answer now" in frame(view, width=120)[0]
    assert "Ctrl-N" not in frame(view, width=80)[0]
    assert "Ctrl-N" not in frame(fold(begin("ann"), answer(1, "ann", "Blue.")), width=120)[0]


@pytest.mark.parametrize("agents", [1, 2, 5, 20, 50])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 10), (20, 3), (200, 60), (8, 2)])
def test_frame_fits_the_terminal(agents: int, width: int, height: int):
    lines = frame(busy_view(agents), 2, width, height)
    assert 2 <= len(lines) <= max(height - 1, 2)
    assert max(cell_len(line) for line in lines) <= width


def test_agents_without_room_are_counted():
    lines = frame(busy_view(50, presenting=False), 2)
    assert "and 29 more agents" in lines[-1]
    assert sum("agent_" in line for line in lines) == 21


def test_end_of_the_final_answer_has_room_beside_fifty_agents():
    lines = frame(busy_view(50), 2)
    assert "最終的な answer" in lines[-1]
    assert sum("agent_" in line for line in lines) == 15


def test_votes_are_visible_while_the_winner_writes():
    lines = frame(fold(*whole_turn()[:-1]), 4.5, width=100)
    assert lines[0].startswith("turn 1 · final answer · Why is the sky blue?")
    assert lines[0].endswith("4.5s")
    assert "writing" in lines[1]
    assert "voted" in lines[2]
    assert "for ann: names the cause" in lines[2]
    assert "the key was refused" in lines[3]
    assert lines[-1] == "The sky is blue because"


def think(view: TurnView, agent: str = "ann") -> TurnView:
    """Let a single agent think and then write."""
    view.feed(begin(agent))
    view.feed(event(0.1, "agent_started", agent_id=agent, round=1, step="answer"))
    view.feed(event(0.2, "agent_delta", agent_id=agent, round=1, channel="reasoning", text="Is it Rayleigh?"))
    return view


def test_reasoning_is_shown_dimmed_until_the_answer_begins():
    view = think(TurnView())
    thinking = build_frame(view, START + timedelta(seconds=1), 80, 24)
    assert "Is it Rayleigh?" in thinking[-1].plain
    assert thinking[-1].style == "dim"
    view.feed(event(0.3, "agent_delta", agent_id="ann", round=1, channel="text", text="It scatters."))
    writing = build_frame(view, START + timedelta(seconds=1), 80, 24)
    assert (writing[-1].plain, writing[-1].style) == ("It scatters.", "")
    assert not any("Rayleigh" in line.plain for line in writing)


def test_reasoning_is_hidden_on_request_and_its_tokens_still_count():
    view = think(TurnView(shows_reasoning=False))
    lines = frame(view, 1)
    assert not any("Rayleigh" in line for line in lines)
    assert any("thinking" in line and "3 tok" in line for line in lines)
    view.feed(event(0.3, "agent_delta", agent_id="ann", round=1, channel="text", text="It scatters."))
    assert "It scatters." in frame(view, 1)[-1]


def test_agents_are_shown_under_their_names():
    names = {"ann": "Technical Specialist", "bob": "Dr. Bob", "eve": "Eve, the Critic"}
    events = give_names(whole_turn(), names)
    during = "\n".join(frame(fold(*events[:-6]), 3.6, width=120))
    assert all(name in during for name in names.values())
    assert "for Technical Specialist: names the cause" in "\n".join(frame(fold(*events[:-4]), 4, width=120))
    text = render(events)
    assert "Technical Specialist wins: 2 of 2 votes" in text
    assert "Eve, the Critic failed: the key was refused" in text
    assert not re.search(r"\b(ann|bob|eve)\b", during + text)


def test_activity_of_a_local_model_before_its_first_word_is_shown():
    view = fold(
        begin("ann"),
        event(0.1, "round_started", round=1, agents=("ann",)),
        event(0.2, "agent_started", agent_id="ann", round=1, step="answer"),
        event(0.3, "agent_busy", agent_id="ann", round=1, activity="loading", share=0.25),
    )
    assert "loading" in frame(view, 1)[1]
    assert "loading the model, 25%" in frame(view, 1)[1]
    view.feed(event(0.4, "agent_busy", agent_id="ann", round=1, activity="loading"))
    assert frame(view, 1)[1].rstrip().endswith("loading the model")
    view.feed(event(0.5, "agent_busy", agent_id="ann", round=1, activity="reading", share=0.5))
    assert "reading the prompt, 50%" in frame(view, 1)[1]
    view.feed(event(0.6, "agent_delta", agent_id="ann", round=1, channel="text", text="Rayleigh."))
    assert "reading" not in "".join(frame(view, 1))


WIDTH, HEIGHT = 40, 10


class Terminal:
    def __init__(self, width: int = WIDTH, height: int = HEIGHT) -> None:
        self.sent = io.StringIO()
        self.console = Console(file=self.sent, force_terminal=True, width=width, height=height, color_system="standard")
        self.pyte = pyte.Screen(width, height)
        self._stream = pyte.Stream(self.pyte)

    def feed(self) -> int:
        """Pass the new output to the terminal; return its length in characters."""
        text = self.sent.getvalue()
        self.sent.seek(0)
        self.sent.truncate()
        # A terminal driver turns each line feed into carriage return and line feed.
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.pyte.display]


def texts(*lines: str) -> list[Text]:
    return [Text(line, style="bold") for line in lines]


FRAMES = st.lists(st.text("abc ", max_size=WIDTH), min_size=1, max_size=HEIGHT - 2)
PRINTED = st.text("xyz", min_size=1, max_size=30)


@given(before=st.integers(0, HEIGHT), steps=st.lists(st.one_of(FRAMES, PRINTED), min_size=1))
def test_terminal_shows_what_is_drawn_and_printed(before: int, steps: list[list[str] | str]):
    """With any number of lines before, frames that grow and shrink, and lines printed in between."""
    terminal = Terminal()
    terminal.sent.write("old\n" * before)
    screen, printed, block, scrolled = Screen(terminal.console), ["old"] * before, [""], 0
    for step in steps:
        if isinstance(step, str):
            screen.print_above(Text(step))
            printed.append(step)
        else:
            screen.draw(texts(*step))
            block = step
        terminal.feed()
        rows = [*printed, *block]
        # Lines that scrolled off the top do not come back.
        scrolled = max(scrolled, len(rows) - HEIGHT)
        expected = rows[scrolled:] + [""] * HEIGHT
        assert terminal.lines() == [row.rstrip() for row in expected[:HEIGHT]]
    screen.clear()
    terminal.feed()
    assert terminal.lines() == (printed[scrolled:] + [""] * HEIGHT)[:HEIGHT]
    assert not terminal.pyte.cursor.hidden


def test_only_changed_lines_are_sent():
    terminal = Terminal(width=100, height=60)
    screen = Screen(terminal.console)
    lines = [f"agent {i} thinks about this and that" for i in range(50)]
    screen.draw(texts(*lines))
    first = terminal.feed()
    screen.draw(texts(*lines))
    assert terminal.feed() == 0
    lines[30] = "agent 30 has answered"
    screen.draw(texts(*lines))
    assert terminal.feed() < 80 < 2_000 < first
    assert terminal.lines()[30] == "agent 30 has answered"


@pytest.mark.parametrize("width", [20, 60])
def test_resized_terminal_is_redrawn(width: int):
    """A narrower terminal wraps the old lines into more rows, and all of them are erased."""
    terminal = Terminal()
    screen = Screen(terminal.console)
    terminal.sent.write("stays\n")
    screen.draw(texts("a" * 35, "b" * 35))
    terminal.feed()
    terminal.pyte.resize(HEIGHT, width)
    terminal.console.width = width
    if width < 35:  # pyte cuts lines off; this is the screen of a terminal that wraps them
        terminal.pyte.reset()
        terminal.sent.write("stays\n" + "a" * 20 + "\n" + "a" * 15 + "\n" + "b" * 20 + "\n" + "b" * 15)
        terminal.feed()
    screen.draw(texts("a" * 15, "b" * 15))
    terminal.feed()
    assert terminal.lines()[:4] == ["stays", "a" * 15, "b" * 15, ""]


def lay_out(text: str) -> str:
    return render_markdown(text, StringIO())


@pytest.mark.parametrize(
    "text",
    [
        "List<String> and <div>text</div>",
        r"\(x^2\) and \* no star",
        "[1]: http://example.com/source",
        "&amp; stays &lt;so&gt;",
        "a <!-- comment --> b",
        "<script>\nalert(1)\n</script>",
    ],
)
def test_text_that_markdown_hides_is_shown(text: str):
    output = lay_out(text)
    for line in text.splitlines():
        assert line in output


def test_line_breaks_of_the_model_are_kept():
    assert lay_out("roses are red\nviolets are blue").splitlines() == ["roses are red", "violets are blue"]


def test_long_lines_wrap_between_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    words = [f"word{i}" for i in range(60)]
    lines = lay_out(" ".join(words)).splitlines()
    assert len(lines) > 8
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).split() == words


def test_link_shows_its_address():
    assert "http://elsewhere.example" in lay_out("[your bank](http://elsewhere.example)")


def test_code_keeps_indentation_without_trailing_blanks():
    output = lay_out("```python\nif x:\n    return [<b>]\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert "    return [<b>]" in output
    assert not any(line.endswith(" ") for line in output.splitlines())


def test_control_sequences_are_removed():
    assert "\x1b]" not in lay_out("\x1b]0;title\x07 and \x1b[2J done")


def test_very_long_answer_is_not_laid_out():
    text = "**x** " * 40_000
    assert lay_out(text).rstrip("\n") == text.rstrip("\n")


def test_words_of_a_table_are_broken_and_not_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    word = "persistent_configuration_of_everything"
    shown = render_markdown(f"| a | b |\n|---|---|\n| {word} | {word} |\n", StringIO())
    assert "…" not in shown
    columns = [line.split() for line in shown.splitlines() if line.strip()][2:]
    assert ["".join(parts) for parts in zip(*columns, strict=True)] == [word, word]
