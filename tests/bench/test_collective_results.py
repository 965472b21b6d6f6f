"""What a benchmark of collectives makes of its numbers: checks, statistics, table, picture."""

import io
import math
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console

from hocket.tools.bench.collectives import plot, table
from hocket.tools.bench.collectives.definitions import (
    BUS,
    DTYPES,
    ROOT,
    elements_of,
    given,
    own_part,
    wrong_elements,
)
from hocket.tools.bench.collectives.result import Contestant, Result, row, slowest
from hocket.tools.report import quantity

pytestmark = pytest.mark.tools

SVG = "{http://www.w3.org/2000/svg}"
WORLD, ELEMENTS = 3, 12_000


def after(what, rank, dtype):
    """Rank by rank, as the MPI standard describes each collective; zeros where it leaves a buffer undefined."""
    before = [given(ELEMENTS, dtype, each) for each in range(WORLD)]
    summed = before[0] + before[1] + before[2]
    undefined = np.zeros_like(summed)
    match what:
        case "all_reduce":
            return summed
        case "reduce":
            return summed if rank == ROOT else undefined
        case "reduce_scatter":
            own_part(undefined, rank, WORLD)[:] = own_part(summed, rank, WORLD)
            return undefined
        case "all_gather":
            return np.concatenate([own_part(each, at, WORLD) for at, each in enumerate(before)])
        case "all_to_all":
            return np.concatenate([own_part(each, rank, WORLD) for each in before])
        case "broadcast":
            return before[ROOT].copy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("what", BUS)
def test_right_results_are_right(what, dtype):
    """A contender would be called wrong that is not."""
    for rank in range(WORLD):
        assert wrong_elements(what, after(what, rank, dtype), rank=rank, world=WORLD) == 0


@pytest.mark.parametrize("what", BUS)
def test_wrong_results_are_counted(what):
    """A fast contender that does not do its work would win."""
    for rank in range(WORLD):
        if what == "reduce" and rank != ROOT:
            continue
        result = after(what, rank, "f32")
        own_part(result, rank, WORLD)[[0, 7, -1]] += 1
        assert wrong_elements(what, result, rank=rank, world=WORLD) == 3
        result = after(what, rank, "f32")
        part = own_part(result, rank, WORLD)
        part[:2048] = np.concatenate([part[1024:2048], part[:1024]])
        assert wrong_elements(what, result, rank=rank, world=WORLD) > 1000, "pieces that changed places"


def test_what_ranks_hold_before_is_not_the_result():
    """A contender that does nothing at all would pass."""
    for what in BUS:
        idle = [
            wrong_elements(what, given(ELEMENTS, "f32", rank), rank=rank, world=WORLD)
            for rank in range(WORLD)
        ]
        assert sum(idle) > 0, what


def test_bus_bandwidth_is_that_of_nccl_tests():
    """Numbers could not be compared with others'."""
    assert {what: share(4) for what, share in BUS.items()} == {
        "all_reduce": 1.5,
        "reduce_scatter": 0.75,
        "all_gather": 0.75,
        "all_to_all": 0.75,
        "broadcast": 1.0,
        "reduce": 1.0,
    }


def test_sizes_are_whole_parts():
    """Libraries that know only equal parts could not take part."""
    assert [elements_of(size, "f32", 3) for size in (1, 12, 4000, 4_000_000)] == [3, 3, 999, 999_999]
    assert elements_of(4000, "f64", 4) == 500


def test_a_collective_is_over_when_its_last_rank_is():
    """Who leaves its share of the work to others would look fast."""
    assert slowest([[1.0, 5.0], [2.0, 4.0], [0.5, 0.5]]) == [2.0, 5.0]


def test_statistics():
    """Numbers would be of other rounds than they say."""
    first_s = [float(each) for each in range(1, 22)]
    times_s = [2 * each for each in first_s]
    made = row(
        "gloo",
        times_s[::-1],
        first_s[::-1],
        what="all_reduce",
        world=4,
        size_bytes=1100,
        elements=275,
        calls=7,
        wrong=0,
        cpu_s=2.0,
    )
    assert (made.p5_s, made.median_s, made.p95_s, made.ratio, len(made.times_s)) == (4.0, 22.0, 40.0, 2.0, 21)
    assert (made.algorithm_byte_per_s, made.bus_byte_per_s) == (50.0, 75.0)


def test_the_ratio_is_of_the_same_round():
    """A machine that becomes slow half-way through would be held against one of them."""
    made = row(
        "mpi",
        [1.0, 30.0, 20.0],
        [2.0, 10.0, 10.0],
        what="reduce",
        world=2,
        size_bytes=8,
        elements=2,
        calls=1,
        wrong=0,
        cpu_s=2.0,
    )
    assert made.ratio == 2.0


def result(sizes=(4_000, 25_000_000), wrong=0):
    seconds = {"engine": 20e-6, "gloo": 400e-6}
    rows = [
        row(
            name,
            [one_s * size / 4000 * each for each in (1.1, 1.0, 1.3)],
            [seconds["engine"] * size / 4000 * each for each in (1.1, 1.0, 1.3)],
            what="all_reduce",
            world=4,
            size_bytes=size,
            elements=size // 4,
            calls=1,
            wrong=wrong if name == "gloo" else 0,
            cpu_s=0.002,
        )
        for size in sizes
        for name, one_s in seconds.items()
    ]
    return Result(
        collective="all_reduce",
        world=4,
        cores=2,
        dtype="f32",
        tcp=False,
        cache_line_ns=61.4,
        contenders=(
            Contestant(name="engine", about="shared memory", empty_call_s=9.1e-6),
            Contestant(name="gloo", about="loopback <TCP>", empty_call_s=1e-4),
        ),
        rows=tuple(rows),
    )


TABLE = """\
all_reduce of f32: 4 ranks on 2 cores; a cache line takes 61 ns from core to core
  engine: shared memory; an empty call takes 9.10 µs
  gloo: loopback <TCP>; an empty call takes 100 µs

                                          algorithm     bus                        over
   size contender    time     p5 to p95        MB/s    MB/s      CPU wrong    engine's
──────────────────────────────────────────────────────────────────────────────────────
4.00 kB engine    22.0 µs  20.0 to 26.0         182     273  2.00 ms     0        1.0x
        gloo       440 µs    400 to 520           9      14  2.00 ms 1,234         20x

25.0 MB engine     138 ms    125 to 163         182     273  2.00 ms     0        1.0x
        gloo       2.75 s  2.50 to 3.25           9      14  2.00 ms 1,234         20x
"""


def words(text):
    """By line; how far columns are apart is the terminal's business."""
    return [line.split() for line in text.splitlines() if line.strip(" ─")]


def test_table():
    """People would read other numbers than were measured."""
    out = io.StringIO()
    shown = result(wrong=1234)
    Console(file=out, width=100).print(table.table(shown))
    said = f"{table.head(shown)}\n{out.getvalue()}".replace("\u202f", " ").replace(quantity.TIMES, "x")
    assert words(said) == words(TABLE)


def opened(text):
    return ElementTree.fromstring(text)  # noqa: S314  # our own


def places(drawn, colour):
    """Points of a contender in both panels, as (x, y)."""
    points = [each for each in drawn.iter(f"{SVG}circle") if each.get("fill") == colour]
    return [(float(each.get("cx")), float(each.get("cy"))) for each in points]


def test_picture():
    """It would show other numbers than the table, or not open at all."""
    shown = result(sizes=(4_000, 400_000, 40_000_000))
    drawn = opened(plot.svg(shown))
    engine, gloo = places(drawn, "var(--s0)"), places(drawn, "var(--s1)")
    time, bandwidth = slice(0, 3), slice(3, 6)
    xs = [x for x, _ in engine[time]]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2), (
        "a hundred times as much is as far each time"
    )
    for at in range(3):
        assert gloo[time][at][1] < engine[time][at][1], "slower is higher up"
        assert gloo[bandwidth][at][1] > engine[bandwidth][at][1], "and has less bandwidth"
    steps = [a[1] - b[1] for a, b in pairwise(engine[time])]
    assert steps[0] == pytest.approx(steps[1], abs=0.2)
    assert steps[0] > 0
    twenty_times = engine[time][0][1] - gloo[time][0][1]
    assert twenty_times / steps[0] == pytest.approx(math.log(20) / math.log(100), abs=0.01)
    texts = [each.text for each in drawn.iter(f"{SVG}text")]
    assert {"engine", "gloo", "time per call", "bus bandwidth", "gloo: loopback <TCP>"} <= set(texts)


@pytest.mark.parametrize("sizes", [(4_000,), (4_000, 5_000), (8, 10**11)])
def test_picture_of_any_sizes(sizes):
    """One size alone, or sizes far apart, would end a benchmark of minutes in an error."""
    drawn = opened(plot.svg(result(sizes=sizes)))
    width, height = (float(drawn.get(side)) for side in ("width", "height"))
    for colour in ("var(--s0)", "var(--s1)"):
        found = places(drawn, colour)
        assert len(found) == 2 * len(sizes)
        assert all(0 < x < width and 0 < y < height for x, y in found)


def test_labels_do_not_cover_each_other():
    """Contenders that are equally fast could not be told apart."""
    shown = result()
    twin = tuple(replace(each, contender="twin") for each in shown.rows[::2])
    more = Contestant(name="twin", about="the same", empty_call_s=1e-6)
    both = replace(shown, rows=shown.rows + twin, contenders=(*shown.contenders, more))
    labels = [each for each in opened(plot.svg(both)).iter(f"{SVG}text") if each.get("class") == "label"]
    assert len(labels) == 6
    for panel in (labels[:3], labels[3:]):
        heights = sorted(float(each.get("y")) for each in panel)
        assert all(below - above >= 14 for above, below in pairwise(heights))
