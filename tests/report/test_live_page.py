"""The page of a running job in a real browser: it keeps itself up to date, lets readers read, and says when the job has ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.browser import CHROMIUM, Browser
from tests.report.served import Served, until
from tests.report.test_report_browser import CONTRASTS
from tests.support.synthetic import RECORD, SyntheticRun, write_trace

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

WORDS = "document.getElementById('live-words').textContent"
MANY = SyntheticRun(steps=8, racks=("north",) * 8, order=tuple(range(8)), bucket_bytes=(1_000_000, 500_000))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace to which a job on another machine seems to write."""
    return write_trace(tmp_path / "trace", MANY, comparison=False)


@pytest.fixture
def served(tmp_path: Path, trace: Path, browser: Browser) -> Iterator[Served]:
    made = Served(tmp_path, trace)
    yield made
    # The page would go on asking a server that is gone.
    browser.open("about:blank")
    browser.errors.clear()
    if made.process.poll() is None:
        made.end()


def grow(trace: Path, steps: int) -> None:
    """Write what a job would: the same trace with more steps."""
    shape = SyntheticRun(steps=steps, racks=MANY.racks, order=MANY.order, bucket_bytes=MANY.bucket_bytes)
    write_trace(trace, shape, comparison=False)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1400])
def test_page_draws_and_follows(
    browser: Browser, served: Served, trace: Path, width: int, dark: bool
) -> None:
    """Broken: the page would stand still, scroll sideways, be unreadable in one of the colours, or its script would fail."""
    browser.open(served.address, width=width, dark=dark)
    assert "runs on other machines" in browser.run(WORDS)
    assert "Steps 2 to 7, the latest" in browser.run("document.querySelector('#timeline p').textContent")
    grow(trace, 20)
    caption = "document.querySelector('#timeline p').textContent"
    until(lambda: "Steps 14 to 19" in browser.run(caption), lambda: browser.run(caption))
    assert browser.run("document.querySelector('#timeline-view canvas').dataset.drawn > 50")
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run(CONTRASTS) == []
    assert browser.errors == []
    if folder := os.environ.get("HOCKET_PICTURES"):
        browser.picture(Path(folder) / f"live-{width}-{'dark' if dark else 'light'}.png")


def test_what_the_reader_uses_stands_still(browser: Browser, served: Served, trace: Path) -> None:
    """Broken: a timeline would jump away under the reader's keys, and opened details would close."""
    browser.open(served.address)
    browser.run("document.querySelector('#learning summary')?.click()")
    browser.run("document.querySelector('#timeline-view canvas').focus()")
    browser.press("+")
    caption = "document.querySelector('#timeline p').textContent"
    records = "document.querySelector('#facts').textContent"
    before = browser.run(records)
    grow(trace, 20)
    until(lambda: browser.run(records) != before)
    assert "Steps 2 to 7" in browser.run(caption)
    browser.run("document.activeElement.blur()")
    grow(trace, 30)
    until(lambda: "Steps 24 to 29" in browser.run(caption), lambda: browser.run(caption))
    assert browser.run("document.querySelector('#learning details').open")
    assert browser.errors == []


def test_readers_stop_the_changes_by_keyboard(browser: Browser, served: Served, trace: Path) -> None:
    """Broken: whoever reads slowly could not (WCAG 2.2, 2.2.2)."""
    browser.open(served.address)
    browser.run("document.activeElement.blur()")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert browser.run("document.activeElement.id") == "live-pause"
    browser.press_button("Enter")
    assert "stands still" in browser.run(WORDS)
    assert browser.run("document.getElementById('live-pause').getAttribute('aria-pressed')") == "true"
    before = browser.run("document.querySelector('main').innerHTML")
    grow(trace, 20)
    time.sleep(3)
    assert browser.run("document.querySelector('main').innerHTML") == before
    browser.press_button("Enter")
    until(lambda: browser.run("document.querySelector('main').innerHTML") != before)


def test_many_ranks_fold(browser: Browser, served: Served) -> None:
    """Broken: what follows the timeline of many ranks would be screens away, or they could not be seen at all."""
    browser.open(served.address)
    height = "document.querySelector('#timeline-view canvas').clientHeight"
    button = "document.getElementById('timeline-fold')"
    folded = browser.run(height)
    assert browser.run(f"{button}.textContent") == "Show all 8 ranks"
    browser.run(f"{button}.focus()")
    browser.press_button("Enter")
    assert browser.run(f"{button}.getAttribute('aria-expanded')") == "true"
    assert browser.run(height) > 1.7 * folded
    browser.press_button("Enter")
    assert (browser.run(height), browser.run(f"{button}.textContent")) == (folded, "Show all 8 ranks")


def test_the_end_of_the_server_is_told(browser: Browser, served: Served) -> None:
    """Broken: a reader would take an old page for the present."""
    browser.open(served.address)
    code, _, errors = served.end()
    assert (code, "Traceback" in errors) == (0, False), errors
    until(lambda: "No longer live" in browser.run(WORDS), lambda: browser.run(WORDS))


def test_half_written_records_are_no_damage(browser: Browser, served: Served, trace: Path) -> None:
    """Broken: the page would warn of truncated files whenever it is made while a rank writes."""
    with (trace / "rank-1.hktrace").open("ab") as file:
        file.write(b"\0" * (RECORD.size - 1))
    browser.open(served.address)
    assert "truncated" not in browser.run("document.body.textContent")
