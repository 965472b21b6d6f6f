"""Dataflow graph of a program as SVG: a lane per rank, ops below their dependencies, an arrow per message."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hocket._native import Program
from hocket.errors import UsageError

OPS_MAX = 2000
CHARACTER_PX, LINE_PX = 7.4, 15
BOX_PX, GAP_X_PX, GAP_Y_PX, LANE_PX, TOP_PX = 38, 14, 26, 40, 70

COLOURS = {
    "send": "#3b82f6",
    "recv": "#10b981",
    "reduce": "#f59e0b",
    "apply": "#a78bfa",
    "call": "#ec4899",
    "copy": "#94a3b8",
    "cast": "#94a3b8",
    "record": "#cbd5e1",
}
OTHER = "#ef4444"

STYLE = """
svg { background: #ffffff; font: 12px ui-monospace, monospace; }
text { fill: #0f172a; } .source { fill: #64748b; font-size: 10px; }
.after { stroke: #94a3b8; fill: none; } .message { stroke: #3b82f6; fill: none; stroke-width: 1.5; }
.lane { fill: #f1f5f9; } .head { fill: #3b82f6; }
@media (prefers-color-scheme: dark) {
  svg { background: #0f172a; } text { fill: #e2e8f0; } .source { fill: #94a3b8; } .lane { fill: #1e293b; }
}
"""

Node = tuple[int, int]


def show(program: Program, path: Path | str | None = None) -> Path:
    """Write `svg(program)`, by default to `NAME.svg` here. Return the path."""
    target = Path(f"{program.name}.svg" if path is None else path)
    target.write_text(svg(program))
    return target


def svg(program: Program, *, ranks: Sequence[int] | None = None) -> str:
    """Return the graph of some ranks (default: all); UsageError when there are too many for a picture.

    >>> from hocket.planning.compile import broadcast_program
    >>> svg(broadcast_program(2, 100)).count('class="message"')
    1
    """
    shown = list(range(program.world)) if ranks is None else list(ranks)
    ops = {rank: program.ops(rank) for rank in shown}
    count = sum(len(each) for each in ops.values())
    if count > OPS_MAX:
        raise UsageError(
            f"{count} ops are more than the {OPS_MAX} that a picture can show\n"
            "hint: choose some `ranks`, or --rank N of `hocket verify`"
        )
    messages = _messages(ops)
    rows = _rows(ops, messages)
    boxes, lanes, size = _place(ops, rows)
    parts = [
        f'<rect class="lane" x="{x:.0f}" y="40" width="{width:.0f}" height="{size[1] - 50:.0f}" rx="6"/>'
        for x, width in lanes
    ]
    parts += [
        f'<text x="{x + width / 2:.0f}" y="58" text-anchor="middle">rank {rank}</text>'
        for rank, (x, width) in zip(shown, lanes, strict=True)
    ]
    for rank, each in ops.items():
        for at, op in enumerate(each):
            needed = _needed(each, op["after"])
            parts += [_edge("after", boxes[rank, before], boxes[rank, at]) for before in needed]
    parts += [_edge("message", boxes[source], boxes[target]) for source, target in messages]
    for rank, each in ops.items():
        parts += [_box(boxes[rank, at], op, at) for at, op in enumerate(each)]
    legend = "".join(
        f'<rect x="{10 + 90 * at}" y="12" width="12" height="12" rx="3" fill="{colour}"/>'
        f'<text x="{27 + 90 * at}" y="22">{kind}</text>'
        for at, (kind, colour) in enumerate(COLOURS.items())
    )
    width = max(size[0], 20 + 90 * len(COLOURS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{size[1]:.0f}" '
        f'viewBox="0 0 {width:.0f} {size[1]:.0f}"><title>{html.escape(program.name)}</title><style>{STYLE}</style>'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>{legend}{"".join(parts)}</svg>\n'
    )


def _messages(ops: dict[int, list[dict[str, Any]]]) -> list[tuple[Node, Node]]:
    sends = {
        (rank, op["peer"], op["tag"]): (rank, at)
        for rank, each in ops.items()
        for at, op in enumerate(each)
        if op["op"] == "send"
    }
    return [
        (sends[op["peer"], rank, op["tag"]], (rank, at))
        for rank, each in ops.items()
        for at, op in enumerate(each)
        if op["op"] == "recv" and (op["peer"], rank, op["tag"]) in sends
    ]


def _needed(ops: list[dict[str, Any]], after: Sequence[int]) -> list[int]:
    """Return dependencies that no other one implies; the others would only add clutter."""
    implied: set[int] = set()
    for each in sorted(after, reverse=True):
        open_ = [] if each in implied else list(ops[each]["after"])
        while open_:
            before = open_.pop()
            if before not in implied:
                implied.add(before)
                open_ += ops[before]["after"]
    return [each for each in after if each not in implied]


def _rows(ops: dict[int, list[dict[str, Any]]], messages: Sequence[tuple[Node, Node]]) -> dict[Node, int]:
    """Return the longest chain of dependencies and messages before each op; at most the number of ops if ranks wait in a cycle."""
    before: dict[Node, list[Node]] = {
        (rank, at): [(rank, each) for each in op["after"]]
        for rank, own in ops.items()
        for at, op in enumerate(own)
    }
    for source, target in messages:
        before[target].append(source)
    rows = dict.fromkeys(before, 0)
    for _ in range(len(rows)):
        changed = False
        for node, earlier in before.items():
            row = max((rows[each] + 1 for each in earlier), default=0)
            if row > rows[node]:
                rows[node], changed = row, True
        if not changed:
            break
    return rows


def _place(
    ops: dict[int, list[dict[str, Any]]], rows: dict[Node, int]
) -> tuple[dict[Node, tuple[float, float, float]], list[tuple[float, float]], tuple[float, float]]:
    """Return boxes as (x, y, width), lanes as (x, width), and the size of the whole."""
    boxes: dict[Node, tuple[float, float, float]] = {}
    lanes: list[tuple[float, float]] = []
    left = 10.0
    for rank, own in ops.items():
        ends: dict[int, float] = {}
        for at, op in enumerate(own):
            row = rows[rank, at]
            width = max(len(line) for line in _lines(op, at)) * CHARACTER_PX + 16
            x = ends.get(row, left + GAP_X_PX)
            boxes[rank, at] = (x, TOP_PX + row * (BOX_PX + GAP_Y_PX), width)
            ends[row] = x + width + GAP_X_PX
        right = max([*ends.values(), left + 120])
        lanes.append((left, right - left))
        left = right + LANE_PX
    height = TOP_PX + (max(rows.values(), default=0) + 1) * (BOX_PX + GAP_Y_PX) + 20
    return boxes, lanes, (left, height)


def _lines(op: dict[str, Any], at: int) -> tuple[str, str]:
    where = f"{Path(op['source'][0]).name}:{op['source'][1]}" if op.get("source") else ""
    return f"{at}: {_text(op)}", where


def _text(op: dict[str, Any]) -> str:  # noqa: PLR0911  # a case per op
    def part(key: str) -> str:
        return "%{}[{}:{}]".format(*op[key])

    match op["op"]:
        case "send":
            return f"send {part('src')} {op['wire']} → {op['peer']}"
        case "recv":
            return f"recv {op['reduce'] or ''} {part('dst')} {op['wire']} ← {op['peer']}".replace("  ", " ")
        case "copy" | "cast":
            return f"{op['op']} {part('src')} to {part('dst')}"
        case "reduce":
            return f"{op['reduce']} {part('src')} into {part('dst')}"
        case "apply":
            return (
                f"scale {op['scale']:.4g} {part('dst')}"
                if "scale" in op
                else f"round {op['round']} {part('dst')}"
            )
        case "call":
            return f"{op['kernel']} → " + " ".join("%{}[{}:{}]".format(*each) for each in op["outputs"])
        case "record":
            return f"check {part('src')}"
    return f"{op['op']} {part('slice')} over {len(op['group'])}"


def _box(place: tuple[float, float, float], op: dict[str, Any], at: int) -> str:
    x, y, width = place
    first, second = _lines(op, at)
    facts = html.escape(", ".join(f"{key}={value}" for key, value in op.items()))
    return (
        f'<g class="op"><title>{facts}</title>'
        f'<rect class="lane" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX_PX}" rx="5"/>'
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX_PX}" rx="5" fill="{COLOURS.get(op["op"], OTHER)}" '
        f'fill-opacity="0.35" stroke="{COLOURS.get(op["op"], OTHER)}"/>'
        f'<text x="{x + 8:.0f}" y="{y + LINE_PX:.0f}">{html.escape(first)}</text>'
        f'<text class="source" x="{x + 8:.0f}" y="{y + 2 * LINE_PX:.0f}">{html.escape(second)}</text></g>'
    )


def _edge(kind: str, source: tuple[float, float, float], target: tuple[float, float, float]) -> str:
    x1, y1 = source[0] + source[2] / 2, source[1] + BOX_PX
    x2, y2 = target[0] + target[2] / 2, target[1]
    head = ' marker-end="url(#head)"' if kind == "message" else ""
    bend = (y2 - y1) / 2
    curve = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"
    return f'<path class="{kind}" d="{curve}"{head}/>'
