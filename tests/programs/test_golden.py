"""What each pass makes of a program, as text beside this file; `make bless` writes it anew, and the difference is reviewed."""

import os
from pathlib import Path

import msgspec
import pytest

from hocket._native import Builder, PassOptions, Program
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.compile import stages

GOLDEN = Path(__file__).parent / "golden"

CASES = {
    "ring-3": (6, (2, 0, 1), AllReduce(algorithm="ring"), {"chunk_bytes": 4}),
    "direct-2": (5, (0, 1), AllReduce(algorithm="direct"), {}),
    "collect-spread-3": (
        10,
        (0, 1, 2),
        AllReduce(algorithm="collect_spread", sizes=(2, 2, 1, 2, 2, 1)),
        {},
    ),
    "in-place-1": (6, (0,), AllReduce(algorithm="in_place"), {}),
    "in-place-3": (6, (2, 0, 1), AllReduce(algorithm="in_place"), {"chunk_bytes": 16}),
    "two-level-f16-4": (
        8,
        (0, 2, 1, 3),
        AllReduce(algorithm="two_level", sizes=(2, 2)),
        {"codec": "f16", "codec_links": ((0, 1), (1, 0)), "chunk_bytes": 16},
    ),
}


def plan(elements, order, route, fields):
    (bucket,) = buckets([[Gradient("w", (elements,), "f32")]], route, order)
    return plan_of([msgspec.structs.replace(bucket, **fields)], len(order), label="golden")


def by_hand():
    """As a policy is traced: two ranks exchange halves in f16 through scratch buffers, then a third joins in by a collective."""
    builder = Builder("by hand", 3)
    for rank in range(3):
        bucket = builder.buffer(rank, "bucket", "f32", 8, "bound")
        if rank < 2:
            cast, got = (builder.buffer(rank, name, "f16", 4, "scratch") for name in ("cast", "got"))
            own, other = ((bucket, 4 * part, 4 * part + 4) for part in (rank, 1 - rank))
            builder.copy(rank, other, (cast, 0, 4), casts=True, source=None)
            builder.send(rank, (cast, 0, 4), 1 - rank, 0, wire="f16", count=None, source=None)
            builder.recv(rank, (got, 0, 4), 1 - rank, 0, wire="f16", reduce=None, count=None, source=None)
            builder.reduce(rank, "sum", (got, 0, 4), own, source=None)
        builder.collective(
            rank,
            "all_gather",
            (bucket, 0, 8),
            members=[0, 1, 2],
            op="sum",
            scale=1.0,
            algorithm="ring",
            numbers=(),
            root=None,
            dst=None,
            source=None,
        )
    logical = builder.finish()
    options = PassOptions(chunk_bytes=8, order=(1, 2, 0), codec="bf16", codec_links=[(2, 0)])
    return {"build": logical, **logical.stages(options)}


@pytest.mark.parametrize("case", [*CASES, "by-hand"])
def test_each_pass_makes_what_it_made_before(case):
    """A change in a pass would change every job's communication unseen."""
    made = by_hand() if case == "by-hand" else stages(plan(*CASES[case]), 0)
    for stage, program in made.items():
        path = GOLDEN / f"{case}.{stage}.hkp"
        if os.environ.get("HOCKET_BLESS") == "1":
            path.parent.mkdir(exist_ok=True)
            path.write_text(str(program))
        assert path.read_text() == str(program), f"{path.name}: see `make bless`"


@pytest.mark.parametrize(
    "path",
    sorted(path for path in GOLDEN.glob("*.hkp") if ".build." not in path.name),
    ids=lambda path: path.stem,
)
def test_golden_programs_may_run(path):
    """The reviewed text would be of a program that loses or deadlocks, or not what the program says."""
    program = Program.parse(path.read_text())
    program.verify()
    assert str(program) == path.read_text()
