"""What each pass makes of a program, as text beside this file; `make bless` writes it anew, and the difference is reviewed."""

import os
from pathlib import Path

import pytest

from hocket._native import Program
from hocket.artefacts.plan import Bucket, Plan, Synchroniser
from hocket.planning.compile import stages

GOLDEN = Path(__file__).parent / "golden"

CASES = {
    "ring-3": (6, (2, 0, 1), Synchroniser(algorithm="ring", chunk_bytes=4)),
    "direct-2": (5, (0, 1), Synchroniser(algorithm="direct")),
    "in-place-3": (6, (2, 0, 1), Synchroniser(algorithm="in_place", chunk_bytes=16)),
    "two-level-f16-4": (
        8,
        (0, 2, 1, 3),
        Synchroniser(
            algorithm="two_level", sizes=(2, 2), codec="f16", codec_links=((0, 1), (1, 0)), chunk_bytes=16
        ),
    ),
}


def plan(elements, order, synchroniser):
    bucket = Bucket(gradients=("w",), elements=elements, dtype="f32", priority=0, synchroniser=synchroniser)
    return Plan(
        world=len(order), order=order, buckets=(bucket,), label="golden", reason="", predicted_step_s=0.0
    )


@pytest.mark.parametrize("case", CASES)
def test_each_pass_makes_what_it_made_before(case):
    """A change in a pass would change every job's communication unseen."""
    for stage, program in stages(plan(*CASES[case]), 0).items():
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
