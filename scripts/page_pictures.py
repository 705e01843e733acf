#!/usr/bin/env python3
"""Take the pictures of the page for README and docs: `massmem ui` with a scripted team, in a real browser.

Usage: .venv/bin/python scripts/page_pictures.py [FOLDER]     (apt-get install chromium)
"""

import os
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from massmem.config.presets import PROVIDERS_BY_KEY
from scripts.benches.page import launch_browser, start_page

TEAM = Path(__file__).parent / "page_pictures.yaml"
MATHEMATICIAN = TEAM.with_name("page_pictures_mathematics.yaml")
DEFAULT = Path(__file__).parents[1] / "docs" / "pictures"
SIZE: ViewportSize = {"width": 1200, "height": 740}
PHONE: ViewportSize = {"width": 390, "height": 844}
QUESTIONS = (
    "We move to Lisbon in May with two children. What should we do first?",
    "Which school would you look at?",
)
MOST_BYTES = 120_000
_FINAL = ".final:not([aria-busy])"


def main(arguments: list[str]) -> None:
    target = Path(arguments[0]) if arguments else DEFAULT
    target.mkdir(exist_ok=True, parents=True)
    expect.set_options(timeout=60_000)
    for variable, _, _ in PROVIDERS_BY_KEY:
        os.environ.pop(variable, None)
    with sync_playwright() as playwright:
        browser = launch_browser(playwright)
        with start_page() as address:
            page = open_page(browser, address, {"width": 1200, "height": 620})
            expect(page.get_by_role("heading", name="Who answers?")).to_be_visible()
            save(page, target / "page-start.png")
        with start_page("--config", str(MATHEMATICIAN)) as address:
            page = open_page(browser, address, SIZE)
            ask(page, "We borrow 200,000 euros for 25 years at 3.6 %. What do we pay a month?")
            expect(page.locator(f"{_FINAL} .katex").first).to_be_visible()
            expect(page.locator(f"{_FINAL} .hl-keyword").first).to_be_visible()
            save(page, target / "page-mathematics.png")
        with start_page("--config", str(TEAM)) as address:
            take_pictures(browser, address, target)
        with start_page("--config", str(TEAM)) as address:
            page = open_page(browser, address, PHONE)
            ask(page, QUESTIONS[0])
            expect(page.locator(".streaming").first).to_contain_text("flat comes")
            page.locator(".messages").evaluate("element => { element.scrollTop = 0 }")
            save(page, target / "page-phone.png")
        browser.close()
    for picture in sorted(target.glob("page-*.png")):
        size = picture.stat().st_size
        print(f"{picture}: {size:,} bytes")
        if size > MOST_BYTES:
            raise SystemExit(f"{picture} is larger than {MOST_BYTES:,} bytes")


def take_pictures(browser: Browser, address: str, target: Path) -> None:
    page = open_page(browser, address, SIZE)
    ask(page, QUESTIONS[1])
    expect(page.locator(_FINAL)).to_be_visible()
    page.get_by_role("link", name="New conversation").click()
    ask(page, QUESTIONS[0])
    expect(page.locator(".streaming").nth(2)).to_contain_text("flat, school")
    save(page, target / "page-live.png")
    page.get_by_role("button", name="Project, folder, mode").click()
    page.get_by_label("Folder", exact=True).fill("~/lisbon")
    ask(page, QUESTIONS[1])
    page.get_by_label("Your question").fill("And what does a flat cost there?")
    page.get_by_role("combobox", name="Job").select_option("factcheck")
    save(page, target / "page-composer.png")
    page.get_by_role("button", name="Take back").click()
    page.get_by_label("Your question").fill("")
    page.get_by_label("Folder", exact=True).fill("")
    page.get_by_role("combobox", name="Job").select_option("")
    page.get_by_role("button", name="Project, folder, mode").click()
    expect(page.locator(_FINAL)).to_be_visible()
    page.get_by_role("button", name="How they decided").click()
    page.locator(".messages").evaluate("element => { element.scrollTop = 0 }")
    save(page, target / "page-answer.png")
    take_later_pictures(page, target)


def take_later_pictures(page: Page, target: Path) -> None:
    """Ask the last question again, find words in it, and look at the prompt of the next."""
    page.get_by_role("button", name="Hide the council").click()
    page.get_by_role("button", name="Ask again").click()
    page.locator(".editing").get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator(".versions")).to_contain_text("2/2")
    save(page, target / "page-versions.png")
    page.get_by_label("Search conversations").fill("vaccination")
    page.locator(".list .hit").first.click()
    expect(page.locator(".marked")).to_be_visible()
    page.get_by_role("button", name="Search in this conversation").click()
    page.get_by_label("Words in this conversation").fill("vaccination")
    expect(page.locator(".find-here [role=status]")).to_contain_text("of")
    save(page, target / "page-hit.png")
    page.get_by_label("Search conversations").fill("")
    page.emulate_media(color_scheme="dark")
    page.get_by_role("link", name="Context").click()
    page.get_by_label("If you asked").fill("Which district has the best schools?")
    page.get_by_role("button", name="Look").click()
    expect(page.locator(".part-memories").first).to_be_visible()
    save(page, target / "page-context.png")


def open_page(browser: Browser, address: str, size: ViewportSize) -> Page:
    page = browser.new_context(viewport=size, color_scheme="light").new_page()
    page.goto(address)
    return page


def ask(page: Page, question: str) -> None:
    page.get_by_label("Your question").fill(question)
    page.get_by_label("Your question").press("Enter")


def save(page: Page, file: Path) -> None:
    """Take a picture, with few colours: they are enough for a page, and make it small."""
    page.screenshot(path=file, animations="disabled")
    Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
