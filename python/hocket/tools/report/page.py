"""Page of the report: sections in reading order; style, script and data are inline, so that one file is enough."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from hocket.errors import ArtefactError, UsageError
from hocket.tools.report import (
    breakdown,
    changes,
    comparison,
    delays,
    facts,
    goodput,
    headline,
    iterations,
    keys,
    learning,
    members,
    network,
    overlap,
    plan,
    prediction,
    search,
    timeline,
    traffic,
    usage,
)
from hocket.tools.report.markup import Html, joined, tag
from hocket.tools.report.material import Material, load
from hocket.tools.report.section import Section, unanswered
from hocket.tools.report.spans import SPANS_MAX

# Opens at once from a slow disk or an issue's attachment; every section has its own limit below this one.
PAGE_BYTES_MAX = 2_000_000
SCRIPTS = ("draw.js", "lines.js", "timeline.js")
REFRESH_UNSCRIPTED_S = 5


@dataclass(frozen=True)
class Live:
    """Part of a page on a running job: a sentence on it, whether it `runs` (else the page is final), and what its ranks do now."""

    words: str
    runs: bool
    now: Section | None


def build(trace_dir: str | Path, out_path: str | Path | None = None) -> Path:
    """Write the report of a trace directory to `out_path`, by default its `report.html`, and return the path.

    The page needs no network: style, script and data are inline, at most PAGE_BYTES_MAX in all. A truncated trace is
    shown as far as it is complete, and the page says so. Raises ArtefactError when the trace cannot be read (missing,
    invalid, newer version), UsageError when the page cannot be written.

    >>> build("out/trace")  # doctest: +SKIP
    PosixPath('out/trace/report.html')
    """
    directory = Path(trace_dir)
    page = render(load(directory))
    out = directory / "report.html" if out_path is None else Path(out_path)
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written: {error.strerror}\nhint: choose another file with -o"
        ) from None
    return out


def numbers(trace_dir: str | Path) -> dict[str, Any]:
    """Return the numbers of the page's tables by section, with units in the names; sections without data are left out."""
    material = load(Path(trace_dir))
    found = {"headline": headline.numbers(material), "notes": material.notes}
    found.update(
        {
            section.name: section.numbers
            for section in _sections(material, spans_max=0)
            if section.numbers is not None
        }
    )
    return found


def render(material: Material, live: Live | None = None) -> Html:
    """Return the whole page as text, with as much of the timeline as PAGE_BYTES_MAX leaves room for."""
    for spans_max in (SPANS_MAX, SPANS_MAX // 4, 0):
        sections = _sections(material, spans_max)
        if live is not None and live.now is not None:
            sections = [live.now, *sections]
        page = _page(headline.header(material), sections, live)
        if len(page.encode()) <= PAGE_BYTES_MAX:
            return page
    raise ArtefactError(f"{material.directory}: texts beyond {PAGE_BYTES_MAX} bytes\nhint: shorten its names")


def without_trace(live: Live) -> Html:
    """Return the page of a running job that has no trace yet, or none that can be read."""
    header = tag("header", tag("p", "Hocket report", class_="kicker"), tag("h1", "Nothing is recorded yet"))
    return _page(header, [] if live.now is None else [live.now], live)


def _page(header: Html, sections: list[Section], live: Live | None) -> Html:
    parts = (header, _contents(sections), tag("main", *(section.html() for section in sections)))
    body = joined(parts if live is None else (_status(live), *parts))
    style, script = _inline(("style.css",)), _inline(SCRIPTS if live is None else (*SCRIPTS, "live.js"))
    return joined(
        (
            Html("<!doctype html>\n"),
            tag(
                "html", _head(style, script, live), tag("body", body, tag("script", Html(script))), lang="en"
            ),
        )
    )


def _status(live: Live) -> Html:
    """Return the line on the job. Readers may stop the page's changes (WCAG 2.2, 2.2.2)."""
    pause = tag("button", "Pause", type="button", id="live-pause", aria_pressed="false")
    return tag(
        "div",
        tag("p", live.words, id="live-words", role="status"),
        pause if live.runs else "",
        class_="live",
        id="live",
        data_runs="yes" if live.runs else None,
    )


def _head(style: str, script: str, live: Live | None) -> Html:
    """Return the page's head: no address may be loaded and only this page's own script may run, whatever the data holds.

    A live page may ask the server from which it came.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    refresh: Html | str = ""
    if live is not None:
        policy += "; connect-src 'self'"
        if live.runs:
            again = Html(f'<meta http-equiv="refresh" content="{REFRESH_UNSCRIPTED_S}">')
            refresh = tag("noscript", again)
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        refresh,
        tag("title", "Hocket report"),
        tag("style", Html(style)),
    )


def _contents(sections: list[Section]) -> Html:
    links = (tag("li", tag("a", section.question, href=f"#{section.name}")) for section in sections)
    return tag("nav", tag("ul", *links), aria_label="Questions")


def _sections(material: Material, spans_max: int) -> list[Section]:
    """Return sections in reading order: first the result, then how it came about, then the inputs."""
    found = (
        comparison.section(material),
        learning.section(material),
        changes.section(material),
        goodput.section(material),
        members.section(material),
        search.section(material),
        delays.section(material),
        breakdown.section(material),
        overlap.section(material),
        iterations.section(material),
        keys.section(material),
        timeline.section(material, spans_max),
        network.section(material),
        plan.section(material),
        prediction.section(material),
        traffic.section(material),
        usage.section(material),
        facts.section(material),
    )
    told = [section for section in found if section is not None]
    answered = [section for section in told if not section.is_absent]
    absent = [section for section in told if section.is_absent]
    return [*answered, unanswered(absent)] if absent else answered


def _inline(names: tuple[str, ...]) -> str:
    return "\n".join((files("hocket.tools.report") / name).read_text(encoding="utf-8") for name in names)
