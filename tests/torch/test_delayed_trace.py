"""The trace of a training with merged and late gradients, and the report that is made of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hocket.artefacts import trace
from hocket.artefacts.trace import Kind
from hocket.tools.formats.launches import iterations, numbers
from hocket.tools.report import build
from hocket.tools.report import numbers as report_numbers
from tests.support import ranks
from tests.torch.test_delayed import AT_ONCE


@pytest.fixture(scope="module", params=[("yes", "one"), ("no", "one"), ("yes", "own first")])
def traced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bool, bool, Path]:
    """Whether the script flushed, whether own gradients go first, and the trace: 13 iterations, turns of two, each applied an
    iteration late."""
    directory = tmp_path_factory.mktemp("traced")
    settings = dataclasses.replace(AT_ONCE, trace=str(directory / "trace"))
    ended = ranks.run(
        "tests.torch.delayed_trace_scripts:traced", 2, directory, *request.param, settings=settings
    )
    assert ended.outcome.code == 0, ended.output
    flushes, steps = request.param
    return flushes == "yes", steps == "own first", directory / "trace"


def test_a_launch_is_of_the_iteration_in_which_it_left(traced: tuple[bool, bool, Path]) -> None:
    """Broken: every question about iterations would be answered about others: launch 5 sums iterations 10 and 11."""
    flushed, _, directory = traced
    run = trace.read(directory)
    for rank in range(2):
        records = run.records(rank)
        found = {each.number: [launch.instance for launch in each.launches] for each in iterations(records)}
        buckets = {program.program for program in run.run.programs if program.bucket is not None}
        of_buckets = {
            each.number: [launch.instance for launch in each.launches if launch.program in buckets]
            for each in iterations(records)
        }
        assert len(buckets) == 2
        assert {number: own for number, own in of_buckets.items() if own and number < 12} == {
            2 * turn + 1: [turn, turn] for turn in range(6)
        }
        assert set(found) <= set(range(14))
        messages = (records["kind"] == Kind.SEND) & (records["program"] == min(buckets))
        launched = {number for number, own in of_buckets.items() if own}
        assert set(numbers(records)[messages].tolist()) <= launched
        assert flushed == (len([own for own in of_buckets.values() for _ in own]) == 14)


def test_the_report_counts_what_was_made_and_applied(traced: tuple[bool, bool, Path]) -> None:
    """Broken: gradients that were never applied would go unnoticed, or a complete run would be called incomplete."""
    flushed, own_first, directory = traced
    found = report_numbers(directory)["delays"]
    assert found["made"] == (13, 13)
    assert found["applied"] == ((13, 13) if flushed else (12, 12))
    # After iterations 2, 4, … 12; a flush applies the thirteenth.
    assert found["updates"] == 6 + flushed
    assert found["saved_open"] == (1, 1)
    # Own gradients first: sums of both slots, and the anchor.
    assert found["extra_bytes"] == (4 if own_first else 1) * 8 * (5 * 7 + 7 + 7 * 3 + 3)
    assert (found["merge_max"], found["delay_max"]) == (2, 1)
    assert 0 < found["coverage"] < found["coverage_before"]
    page = build(directory).read_text(encoding="utf-8")
    assert ("Gradients were lost" in page) == (not flushed)
    assert "coloured by generation" in page
    assert ("ranks go on with their own gradients" in page) == own_first
    assert "What the guard found when the plan was made" in page
    for cell in ("0.031", "0.05", "kept", "merged up to 9", "0.85", "exceeded"):
        assert cell in page
