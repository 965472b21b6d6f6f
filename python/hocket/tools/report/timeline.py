"""Section on each rank's activity over time: a few steps from the middle of the run, drawn by `timeline.js`."""

from __future__ import annotations

from hocket.tools.report.markup import Html, data, joined, tag
from hocket.tools.report.material import STEP, Material
from hocket.tools.report.section import Section, absent
from hocket.tools.report.spans import SPANS_MAX, Choice, choose, folded, generations_of, island
from hocket.tools.report.step_parts import last_rank, step_times

MINUS = "\u2212"
NAME, QUESTION = "timeline", "What does each rank do, and when?"
HELP = (
    f"Drag or ← → to move, Ctrl + wheel, pinch or + {MINUS} to zoom, 0 to fit. "
    "Point at a bar to read its times, or go from bar to bar with the keys . and , after a click."
)


def section(material: Material, spans_max: int = SPANS_MAX) -> Section:
    """Return at most `spans_max` spans; one line without steps, or if a single step has more."""
    choice = choose(material, spans_max)
    if choice is None:
        any_steps = any(len(material.of_kind(rank, STEP)) for rank in material.ranks)
        why = (
            "One step has more spans than a page can hold."
            if any_steps
            else "No steps were recorded in this trace."
        )
        return absent(NAME, QUESTION, why)
    last = last_rank(material, step_times(material))
    late = None if last is None else last.rank
    parts = (
        tag("p", _caption(material, choice)),
        tag(
            "ul", *_phase_keys(), *_bucket_keys(choice, generations=generations_of(material)), class_="legend"
        ),
        _controls(choice, len(folded(choice, late))),
        _canvas(choice),
        tag("p", "", class_="spoken", id="timeline-spoken", aria_live="polite"),
        tag("p", HELP, class_="hint"),
        tag(
            "noscript", tag("p", "The timeline needs JavaScript; the medians above do not.", class_="absent")
        ),
        data("timeline-data", island(material, choice, late)),
    )
    return Section(NAME, QUESTION, joined(parts))


def _caption(material: Material, choice: Choice) -> str:
    first, last = choice.steps[0][0], choice.steps[-1][0]
    steps = f"Step {first}" if first == last else f"Steps {first} to {last}"
    words = f"{steps}, {'the latest' if material.runs else 'from the middle of the run'}, on one clock."
    if len(choice.ranks) < len(material.ranks):
        words += f" {len(choice.ranks)} of {len(material.ranks)} ranks are shown."
    if not choice.sends:
        words += " Sends are left out: there are too many for a page."
    return words


def _phase_keys() -> list[Html]:
    names = ("forward", "backward", "wait", "optimizer")
    return [tag("li", tag("i", class_=f"key {name}"), name) for name in names]


def _bucket_keys(choice: Choice, *, generations: bool) -> list[Html]:
    if generations:
        return [
            tag("li", tag("i", class_="key generations"), "a bucket's all-reduce, coloured by generation"),
            *(
                [tag("li", tag("i", class_="key generations"), "a link's sends, below")]
                if choice.sends
                else ()
            ),
            tag("li", tag("i", class_="key update"), "an update"),
        ]
    keys = [tag("li", tag("i", class_="key bucket"), "a bucket's all-reduce, launch to done")]
    if choice.sends:
        keys.append(tag("li", tag("i", class_="key send"), "one of its sends on the wire"))
    return keys


def _controls(choice: Choice, drawn: int) -> Html:
    options = [tag("option", f"step {step}", value=index) for index, (step, _, _) in enumerate(choice.steps)]
    picker = tag("select", tag("option", "all shown", value="all"), *options, id="timeline-step")
    return tag(
        "div",
        tag("label", "Show ", picker),
        tag("button", MINUS, type="button", data_zoom="out", aria_label="Zoom out"),
        tag("button", "+", type="button", data_zoom="in", aria_label="Zoom in"),
        tag("button", "Fit", type="button", data_zoom="fit"),
        tag(
            "button",
            f"Show all {len(choice.ranks)} ranks",
            type="button",
            id="timeline-fold",
            aria_expanded="false",
        )
        if drawn < len(choice.ranks)
        else "",
        class_="controls",
    )


def _canvas(choice: Choice) -> Html:
    label = f"Timeline of {len(choice.ranks)} ranks. {HELP}"
    canvas = tag("canvas", tabindex=0, role="application", aria_label=label)
    return tag(
        "div", canvas, tag("div", class_="tip", hidden="hidden"), class_="timeline", id="timeline-view"
    )
