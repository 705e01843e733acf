"""The page with much to show: a conversation of 100,000 messages, 10,000 conversations, a turn of a megabyte."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, Response, expect

from massmem.core.records import LogEntry, Owner, SessionCopy, SessionRecord, SessionState
from massmem.session.owners import to_stored_id
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.e2e.test_page import Open, ask, final_answer, open_page
from tests.support.sample_turn import START, begin, event
from tests.support.service import Service, make_agent, make_config

__all__ = ["open_page"]

pytestmark = pytest.mark.slow

MEGABYTE = 1_000_000
MOST_BYTES = 200_000
"""Of all that the page asks for to show a view, however much there is."""

MOST_CHARACTERS = 60_000
"""Of one text on the page, before its reader asks for all of it."""

MOST_REQUESTS, MOST_BYTES_AT_FIRST, MOST_ELEMENTS = 4, 20_000, 1_000
"""What the page asks for and holds when it has just been opened, however many conversations there are."""

SIZES = [pytest.param((500, 150), id="small"), pytest.param((50_000, 10_000), id="large", marks=pytest.mark.full)]
"""Turns of the long conversation, two messages each; conversations beside it."""


@pytest.fixture(scope="module", params=SIZES)
def sizes(request: pytest.FixtureRequest) -> tuple[int, int]:
    return request.param


@pytest.fixture(scope="module")
def service(sizes: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    whole = "Air scatters blue light. " * (900_000 // 25)  # a configuration has a megabyte at most
    agents = [make_agent("ann", "It is blue."), make_agent("ben", "It is blue.")]
    folder = tmp_path_factory.mktemp("large")
    team = folder / "talkative.yaml"
    team.write_text(json.dumps({"agents": [make_agent("ann", "", answer=[whole], chunk_size=500)]}))
    server = {"limits": {"requests": 100_000}, "teams": {"talkative": str(team)}}
    service = Service(folder, make_config(*agents, server=server, memory={"enabled": False}))
    with ThreadPoolExecutor(1) as other_thread:  # the loop of the browser runs in this one
        other_thread.submit(lambda: asyncio.run(fill(service.home / ".massmem", *sizes))).result()
    service.start()
    yield service
    service.stop()


async def fill(home: Path, turns: int, sessions: int) -> None:
    """Store, for alice, a long conversation, one of a turn of two megabytes, and for bob many short ones."""
    home.mkdir(exist_ok=True)
    store = await open_store(f"sqlite:///{home}/massmem.db", home)
    await store_session(store, "alice", "long", [(f"Question {n}?", f"Answer {n}.") for n in range(1, turns + 1)])
    await store_session(store, "alice", "heavy", [("Why? " * (MEGABYTE // 5), "So 🪁" * (MEGABYTE // 4))])
    for number in range(sessions):
        await store_session(store, "bob", f"s{number}", [(f"What is the number {number}?", "A number.")])
    await store.close()


async def store_session(store: SessionStore, user: str, name: str, turns: Sequence[tuple[str, str]]) -> None:
    session_id = to_stored_id(Owner(user), name)
    record = SessionRecord(
        session_id=session_id, user_id=user, title=turns[0][0][:80], last_message=turns[-1][1][:80],
        message_count=2 * len(turns), status="completed", created_at=START, updated_at=START,
    )  # fmt: skip

    async def write_log() -> AsyncGenerator[Sequence[LogEntry]]:
        seq, entries = 0, list[LogEntry]()
        for number, (question, answer) in enumerate(turns, start=1):
            started = begin("ann", question=question).model_copy(update={"session_id": session_id, "turn": number})
            ended = event(1, "turn_completed", winner="ann", answer=answer, presented=False, usage={})
            for stored in (started, ended):
                seq += 1
                entries.append(LogEntry(seq=seq, turn=number, payload=stored.model_dump_json()))
            if len(entries) >= 1_000:
                yield entries
                entries = []
        yield entries

    await store.import_session(SessionCopy(session=record, state=SessionState()), write_log())


def count_bytes(answers: Sequence[Response]) -> int:
    """Return the size of all that the page has asked the service for, but for its own files."""
    return sum(len(answer.body()) for answer in answers if "/api/" in answer.url and "/stream" not in answer.url)


def show(page: Page, name: str) -> None:
    expect(page.get_by_label("Your question")).to_be_visible()
    page.evaluate("name => { location.hash = `#/c/${name}` }", name)


def test_long_conversation_is_read_from_its_end(open_page: Open, sizes: tuple[int, int]) -> None:
    last = sizes[0]
    answers: list[Response] = []
    page = open_page("alice", on_response=lambda answer: answers.append(answer))
    show(page, "long")
    turns = page.locator(".turn")
    expect(final_answer(page)).to_contain_text(f"Answer {last}.")
    expect(turns).to_have_count(15)
    for pages in range(1, 4):
        page.get_by_role("button", name="Show earlier messages").click()
        expect(turns).to_have_count(15 + 15 * pages)
        expect(turns.first).to_contain_text(f"Question {last - 14 - 15 * pages}?")
        expect(turns.nth(15)).to_contain_text(f"Question {last + 1 - 15 * pages}?")
    expect(turns.nth(15)).to_be_in_viewport()
    turns.first.get_by_role("button", name="How they decided").click()
    expect(turns.first.locator(".council")).to_be_attached()
    assert count_bytes(answers) < MOST_BYTES
    ask(page, "And now?")
    expect(final_answer(page)).to_contain_text("It is blue.")
    expect(turns.last).to_contain_text("And now?")


def test_many_conversations_are_listed_in_parts(open_page: Open, sizes: tuple[int, int]) -> None:
    answers: list[Response] = []
    page = open_page("bob", on_response=lambda answer: answers.append(answer))
    links = page.locator(".list a:not(.hit)")
    expect(links).to_have_count(40)
    page.get_by_role("button", name=f"Show more of {sizes[1]:,}").click()
    expect(links).to_have_count(140)
    assert count_bytes(answers) < MOST_BYTES
    page.get_by_label("Search conversations").fill("the number 123?")
    expect(links).to_have_count(1)
    links.click()
    expect(final_answer(page)).to_contain_text("A number.")


def test_first_view_grows_with_nothing(open_page: Open, sizes: tuple[int, int]) -> None:
    answers: list[Response] = []
    page = open_page("bob", on_response=lambda answer: answers.append(answer))
    expect(page.locator(".list a:not(.hit)")).to_have_count(40)
    answers.clear()
    page.reload()
    expect(page.locator(".list a:not(.hit)")).to_have_count(40)
    listed = page.evaluate("performance.now()")
    page.wait_for_load_state("networkidle")
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    asked = [answer.url.partition("/api/")[2] for answer in answers if "/api/" in answer.url]
    size = count_bytes(answers)
    print(f"{sizes[1]:,} conversations: first paint {painted:.0f} ms, list {listed:.0f} ms, {size:,} bytes")
    assert len(asked) <= MOST_REQUESTS, asked
    assert size < MOST_BYTES_AT_FIRST
    assert page.locator("body *").count() < MOST_ELEMENTS


def test_text_of_a_megabyte_is_shown_in_part_until_it_is_asked_for(open_page: Open) -> None:
    answers: list[Response] = []
    page = open_page("alice", on_response=lambda answer: answers.append(answer))
    show(page, "heavy")
    expect(final_answer(page)).to_contain_text("So 🪁So 🪁")
    assert count_bytes(answers) < MOST_BYTES
    assert len(page.locator(".messages").inner_text()) < MOST_CHARACTERS
    page.locator(".message.user").get_by_role("button", name="Show all 1,000,000 characters").click()
    question = page.get_by_role("dialog").locator("pre")
    expect(question).to_have_js_property("textContent.length", MEGABYTE)
    page.keyboard.press("Escape")
    page.locator(".message.final").get_by_role("button", name="Show all 1,000,000 characters").click()
    expect(page.locator(".message.final .prose")).to_have_js_property("textContent.length", MEGABYTE * 5 // 4)


def test_answer_of_a_megabyte_is_followed_while_it_is_written(open_page: Open) -> None:
    page = open_page("carol")
    ask(page, "Why?", "talkative")
    expect(final_answer(page)).to_contain_text("Air scatters blue light.")
    expect(final_answer(page).locator("time")).to_be_visible()
    assert len(page.locator(".messages").inner_text()) < MOST_CHARACTERS
    ask(page, "And now?")
    expect(page.locator(".turn")).to_have_count(2)
