"""The page in a browser while eight agents write, on a phone and on a desk: frames, layout shift, work."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, cast

from playwright.sync_api import Browser, CDPSession, Playwright, ViewportSize, expect, sync_playwright

from scripts.benches.process import BenchError
from scripts.benches.rows import Row, at_most, reported

AGENTS = 8
SIZES: dict[str, ViewportSize] = {"phone": {"width": 400, "height": 850}, "desk": {"width": 1400, "height": 900}}
TEXT = (
    "## Scattering\n\nAir scatters **blue** light more than red, as $I \\propto \\lambda^{-4}$.\n\n"
    "$$\\sum_{k=0}^n k^2$$\n\n- `blue`: 450 nm\n- `red`: 700 nm\n\n"
    "```python\ndef scatter(nm: float) -> float:\n    return 1 / nm**4\n```\n\n"
) * 6
WATCH = """
() => {
    const watch = { frames: [], shift: 0, last: performance.now() }
    const count = now => { watch.frames.push(now - watch.last); watch.last = now; requestAnimationFrame(count) }
    requestAnimationFrame(count)
    const add = ({ hadRecentInput, value }) => { watch.shift += hadRecentInput ? 0 : value }
    new PerformanceObserver(list => list.getEntries().forEach(add)).observe({ type: 'layout-shift', buffered: true })
    window.watch = watch
}
"""


def run() -> list[Row]:
    rows: list[Row] = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser, team = launch_browser(playwright), write_team(folder)
        for name, size in SIZES.items():
            with start_page("--config", str(team)) as address:
                rows += measure(browser, address, name, size)
        browser.close()
    return rows


def measure(browser: Browser, address: str, name: str, size: ViewportSize) -> list[Row]:
    page = browser.new_context(viewport=size).new_page()
    page.goto(address)
    page.get_by_label("Your question").fill("Why is the sky blue?")
    page.evaluate(WATCH)
    meter = page.context.new_cdp_session(page)
    meter.send("Performance.enable", {"timeDomain": "threadTicks"})  # pyright: ignore[reportUnknownMemberType]
    page.get_by_label("Your question").press("Enter")
    expect(page.locator(".streaming").first).to_be_visible(timeout=60_000)
    page.evaluate("watch.frames.length = 0")
    before = read_figures(meter)
    page.wait_for_timeout(8_000)
    frames: list[float] = page.evaluate("watch.frames")
    after = read_figures(meter)
    expect(page.locator(".message.final:not([aria-busy]) time")).to_be_visible(timeout=120_000)
    shift = page.evaluate("watch.shift")
    spent = {name: 1_000 * (after[name] - before[name]) / len(frames) for name in FIGURES}
    parts = ", ".join(f"{name} {milliseconds:.1f}" for name, milliseconds in spent.items())
    page.context.close()
    return [
        at_most(f"{name}: frames while {AGENTS} agents write, 95 %", quantiles(frames, n=20)[-1], "ms", 34),
        reported(f"{name}: CPU of its thread for a frame", spent["Task"], "ms", parts),
        at_most(f"{name}: layout shift of the whole turn", shift, "", 0.1),
    ]


FIGURES = {name: f"{name}Duration" for name in ("Task", "Script", "Layout", "RecalcStyle")}
"""Of Chromium: seconds of CPU of the page's thread, all in all and by what it did."""


def read_figures(meter: CDPSession) -> dict[str, float]:
    sent = cast("dict[str, Any]", meter.send("Performance.getMetrics"))  # pyright: ignore[reportUnknownMemberType]
    values: dict[str, float] = {entry["name"]: entry["value"] for entry in sent["metrics"]}
    return {name: values[key] for name, key in FIGURES.items()}


def write_team(folder: str) -> Path:
    """Write a team of eight agents that write for long; return its file."""
    vote = [{"vote_for": "Scattering", "reason": "It is complete."}]
    script: dict[str, Any] = {"latency": 0.1, "chunk_delay": 0.03, "chunk_size": 6, "present": TEXT, "vote": vote}
    scripts = [{**script, "answer": f"{TEXT}\n\nSo says number {number}."} for number in range(AGENTS)]
    agents = [{"id": f"agent{n}", "backend": {"type": "scripted", "script": one}} for n, one in enumerate(scripts)]
    team = Path(folder, "team.json")
    team.write_text(json.dumps({"agents": agents}))
    return team


@contextmanager
def start_page(*options: str) -> Generator[str]:
    """Run `massmem ui` with these options in an empty home for the block; give its address."""
    with tempfile.TemporaryDirectory(prefix="massmem-page-") as home:
        command = [sys.executable, "-m", "massmem", "ui", "--no-browser", *options]
        environ = {**os.environ, "HOME": home}
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def launch_browser(playwright: Playwright) -> Browser:
    """Launch the chromium of this machine. Raises BenchError: there is none."""
    program = shutil.which("chromium")
    if program is None:
        raise BenchError("there is no browser: apt-get install chromium")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=program, args=arguments)
