"""The page in a real browser: it draws, without errors, at the widths and in the colours of its readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.tools.report import build
from tests.report.browser import CHROMIUM, Browser
from tests.support.synthetic import SyntheticRun, write_trace

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

INK = """(() => {
  const canvas = document.querySelector("#timeline-view canvas");
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) {
    if (pixels[i + 3] === 255) colours.add(pixels.slice(i, i + 3).join());
  }
  return colours.size;
})()"""
CANVAS = "document.querySelector('#timeline-view canvas')"
TIP = "document.querySelector('#timeline-view .tip')"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(write_trace(tmp_path_factory.mktemp("trace"), SyntheticRun(steps=12)))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1280])
def test_page_draws(browser: Browser, report: Path, tmp_path: Path, width: int, dark: bool) -> None:
    """The charts would be empty, the script would fail, or the page would scroll sideways."""
    browser.open(report, width=width, dark=dark)
    assert browser.errors == []
    assert browser.run("document.querySelectorAll('.chart svg path').length") == 6, (
        "two charts of three strategies"
    )
    assert browser.run("[...document.querySelectorAll('.chart path')].every(p => p.getTotalLength() > 100)")
    assert browser.run(INK) > 6, "the bars of four phases, buckets and sends"
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run("matchMedia('(prefers-color-scheme: dark)').matches") is dark
    browser.picture(tmp_path / "page.png", height=600)
    assert (tmp_path / "page.png").stat().st_size > 10_000


@pytest.mark.parametrize("width", [360, 1400])
def test_distributions_are_drawn_within_their_areas(browser: Browser, report: Path, width: int) -> None:
    """A line, a bar or a label would stand outside of its picture, or a picture be empty."""
    browser.open(report, width=width)
    assert browser.errors == []
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run("document.querySelectorAll('.cdf').length") == 6, "four of iterations, two of keys"
    drawn = browser.run("""[...document.querySelectorAll('.cdf')].map((figure) => {
      const plot = figure.querySelector('svg').getBoundingClientRect();
      const lines = [...figure.querySelectorAll('path:not(.grid)')].map((path) => path.getBoundingClientRect());
      const texts = [...figure.querySelectorAll('.ticks span')].map((text) => text.getBoundingClientRect());
      return {
        lines: lines.length,
        high: Math.max(...lines.map((line) => line.height)) / plot.height,
        inside: lines.every((line) => line.left > plot.left - 3 && line.right < plot.right + 3),
        labelled: texts.every((text) => text.left > 0 && text.right <= innerWidth),
        apart: texts.every((text, at) => !at || text.left >= texts[at - 1].right),
      };
    })""")
    for each in drawn:
        assert each["lines"] >= 1
        assert each["high"] > 0.9
        assert each["inside"]
        assert each["labelled"]
        assert each["apart"]
    assert browser.run("document.querySelectorAll('#keys .reach').length") == 15, (
        "three tables of five buckets"
    )


def test_long_names_do_not_scroll_the_page(browser: Browser, tmp_path: Path) -> None:
    """On a telephone the whole page would move sideways because one host has a long name."""
    write_trace(tmp_path, SyntheticRun(steps=4))
    for name in ("run.json", "comparison.json"):
        text = (tmp_path / name).read_text()
        for word in ("node1", "north", "contiguous", "block0", "train", "DDP", "transformer", "per byte"):
            text = text.replace(word, word + "longer" * 20)
        (tmp_path / name).write_text(text)
    browser.open(build(tmp_path), width=400)
    assert browser.run("document.documentElement.scrollWidth") == 400
    assert browser.errors == []


def test_timeline_obeys_keys(browser: Browser, report: Path) -> None:
    """Without a mouse the timeline could not be zoomed, moved or read."""
    browser.open(report)
    browser.run(f"{CANVAS}.focus()")
    before = browser.run(f"{CANVAS}.toDataURL()")
    browser.press("+")
    zoomed = browser.run(f"{CANVAS}.toDataURL()")
    browser.press("ArrowRight")
    moved = browser.run(f"{CANVAS}.toDataURL()")
    assert len({before, zoomed, moved}) == 3
    browser.press("0")
    assert browser.run(f"{CANVAS}.toDataURL()") == before
    said = []
    for _ in range(3):
        browser.press(".")
        said.append(browser.run("document.getElementById('timeline-spoken').textContent"))
    assert len(set(said)) == 3
    assert any("bucket" in words and "ready" in words and "MB" in words for words in said)
    assert browser.errors == []


def test_timeline_tells_what_is_under_the_pointer(browser: Browser, report: Path) -> None:
    """Bars would not say their bucket, bytes and times."""
    browser.open(report)
    browser.run(f"{CANVAS}.scrollIntoView({{behavior: 'instant'}})")
    place = browser.run(f"(r => [r.left + r.width / 2, r.top])({CANVAS}.getBoundingClientRect())")
    told = set()
    for below in range(60, 170, 7):
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1] + below)
        if not browser.run(f"{TIP}.hidden"):
            told.add(browser.run(f"{TIP}.textContent"))
    assert any(words.startswith("wait, rank 0") for words in told)
    assert any(
        words.startswith("bucket 4, rank 0") and "1.05 MB" in words and "ready" in words for words in told
    )


def test_step_filter(browser: Browser, report: Path) -> None:
    """The reader could not pick another step."""
    browser.open(report)
    pictures = set()
    picker = "document.getElementById('timeline-step')"
    for value in browser.run(f"[...{picker}.options].map(option => option.value)"):
        browser.run(f"{picker}.value = '{value}', {picker}.dispatchEvent(new Event('change'))")
        pictures.add(browser.run(f"{CANVAS}.toDataURL()"))
    assert len(pictures) == 7, "all, and six steps"


def test_loss_chart_tells_values(browser: Browser, report: Path) -> None:
    """The loss under the pointer, or under the arrow keys, could not be read."""
    browser.open(report)
    browser.run("document.querySelector('[data-line=seconds] svg').focus()")
    browser.press("ArrowRight")
    told = browser.run("document.querySelector('[data-line=seconds] .tip').textContent")
    assert all(name in told for name in ("PyTorch DDP:", "PyTorch DDP, f16 hook:", "Hocket:"))


CONTRASTS = """(() => {
  const luminance = ([r, g, b]) => [r, g, b].reduce((sum, v, i) => {
    v /= 255;
    return sum + [0.2126, 0.7152, 0.0722][i] * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  }, 0);
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((v, i) => v * a + under[i] * (1 - a));
  const behind = (node) => {
    if (!node) return [255, 255, 255];
    const own = parse(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, behind(node.parentElement));
  };
  const low = [];
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || node.closest("script, noscript, svg, .spoken") || !node.getClientRects().length) continue;
    const a = luminance(parse(getComputedStyle(node).color)), b = luminance(behind(node));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) low.push(`${node.textContent.slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  return low;
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast(browser: Browser, report: Path, dark: bool) -> None:
    """People with weak eyes, or a weak screen, could not read the page (WCAG 2.2, 1.4.3)."""
    browser.open(report, dark=dark)
    assert browser.run(CONTRASTS) == []
