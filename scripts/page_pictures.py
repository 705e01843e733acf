#!/usr/bin/env python3
"""Take the pictures of the page for README and docs: `massmem ui` with a scripted team, in a real browser.

Usage: .venv/bin/python scripts/page_pictures.py [FOLDER]     (apt-get install chromium)
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

TEAM = Path(__file__).parent / "page_pictures.yaml"
DEFAULT = Path(__file__).parents[1] / "docs" / "pictures"
SIZE: ViewportSize = {"width": 1200, "height": 740}
QUESTIONS = (
    "We move to Lisbon in May with two children. What should we do first?",
    "Which school would you look at?",
)
MOST_BYTES = 150_000


def main(arguments: list[str]) -> None:
    target = Path(arguments[0]) if arguments else DEFAULT
    target.mkdir(exist_ok=True, parents=True)
    with start_page() as address, sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        take_pictures(browser, address, target)
        browser.close()
    for picture in sorted(target.glob("page-*.png")):
        size = picture.stat().st_size
        print(f"{picture}: {size:,} bytes")
        if size > MOST_BYTES:
            raise SystemExit(f"{picture} is larger than {MOST_BYTES:,} bytes")


def take_pictures(browser: Browser, address: str, target: Path) -> None:
    page = browser.new_context(viewport=SIZE, color_scheme="light").new_page()
    page.goto(address)
    for question in QUESTIONS[1:]:
        ask(page, question)
        expect(page.locator(".final:not([aria-busy])")).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="New conversation").click()
    ask(page, QUESTIONS[0])
    expect(page.locator(".streaming").nth(2)).to_contain_text("flat, school")
    page.screenshot(path=target / "page-live.png")
    expect(page.locator(".final:not([aria-busy])")).to_be_visible(timeout=60_000)
    page.get_by_role("button", name="How they decided").click()
    page.locator(".messages").evaluate("element => { element.scrollTop = 0 }")
    page.screenshot(path=target / "page-answer.png")
    page.emulate_media(color_scheme="dark")
    page.get_by_role("link", name="Context").click()
    page.get_by_label("If you asked").fill("Which district has the best schools?")
    page.get_by_role("button", name="Look").click()
    expect(page.locator(".part-memories").first).to_be_visible()
    page.screenshot(path=target / "page-context.png")


def ask(page: Page, question: str) -> None:
    page.get_by_label("Your question").fill(question)
    page.get_by_label("Your question").press("Enter")


@contextmanager
def start_page() -> Generator[str]:
    """Run `massmem ui` in an empty home for the block; give its address."""
    with tempfile.TemporaryDirectory(prefix="massmem-page-") as home:
        command = [sys.executable, "-m", "massmem", "ui", "--config", str(TEAM), "--no-browser"]
        environ = {**os.environ, "HOME": home}
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


if __name__ == "__main__":
    main(sys.argv[1:])
