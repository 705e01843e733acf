"""The page shows a report of the council above the answer, and asks agents that were not needed once more."""

import json
import re

import pytest
from playwright.sync_api import Browser, expect

from tests.support.calibrations import write_calibration
from tests.support.page import StartPage

pytestmark = pytest.mark.slow

REPORT = {
    "agreed": [{"text": "It is a <b>bridge</b>.", "answers": ["A", "B"]}],
    "single": [{"text": "It opened in 1932.", "answers": ["A"]}],
    "missing": ["Who paid"],
    "answer": "In 1932.",
}


def test_report_stands_above_the_answer(start_page: StartPage, browser: Browser):
    script = {"report": [{"raw": json.dumps(REPORT)}]}
    backends = [{"type": "scripted", "script": {**script, "answer": [{"text": text}]}} for text in ("1932", "1930")]
    agents = [{"id": f"a{n}", "name": f"Agent {n}", "backend": backend} for n, backend in enumerate(backends)]
    page = start_page(
        {"agents": agents, "coordination": {"presentation": "report", "max_rounds": 1}, "memory": {"enabled": False}}
    )
    write_calibration(page.home, page.home.parent / "page.yaml", {("a0",): (40, 30)})
    tab = browser.new_page()
    tab.goto(page.address)
    tab.get_by_label("Your question").fill("When?")
    tab.get_by_label("Your question").press("Enter")
    report = tab.get_by_label("Report of the council")
    for _ in range(2):
        expect(report).to_contain_text("It is a <b>bridge</b>. Agent 0, Agent 1", timeout=60_000)
        expect(report).to_contain_text("Who paid")
        expect(tab.get_by_text("were right 75 % of the time (40 questions, 60-86)")).to_be_visible()
        tab.reload()
    tab.close()


def test_agents_that_were_not_needed_are_asked_again(start_page: StartPage, browser: Browser):
    agents = [
        {"id": name, "backend": {"type": "scripted", "script": {"answer": f"Answer: {number}", "vote": "first"}}}
        for name, number in (("red", 42), ("green", 42), ("blue", 41))
    ]
    page = start_page({"agents": agents, "coordination": {"depth": "adaptive"}, "memory": {"enabled": False}})
    tab = browser.new_page()
    tab.goto(page.address)
    tab.get_by_label("Your question").fill("What is 6 x 7?")
    tab.get_by_label("Your question").press("Enter")
    expect(tab.get_by_text("blue was not needed").first).to_be_visible(timeout=60_000)
    tab.get_by_role("button", name="Ask again").click()
    tab.get_by_label("Ask all agents").check()
    tab.get_by_role("button", name="Ask", exact=True).first.click()
    # Whose answer comes first is drawn: that of two which are the same, or the other one.
    sentence = re.compile("of 3 (agents gave or chose this answer|votes)")
    expect(tab.get_by_text(sentence)).to_be_visible(timeout=60_000)
    tab.close()
