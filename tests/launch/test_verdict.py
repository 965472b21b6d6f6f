"""Which rank is at fault, from how all ended and what they said: no order of exits may decide."""

import itertools

import pytest

from hocket.errors import UsageError
from hocket.job.cause import cause_of
from hocket.job.store.verdict import Exit, Report, Verdict, settled, verdict


def blames(rank, why="lost"):
    return Report(reason=f"PeerError: rank {rank}", cause=rank, why=why)


OWN = Report(reason="ValueError: bad batch")
LEFT = Report(reason=None)
CODE_1 = Exit(code=1)

CASES = [
    ("raises", 1, {0: CODE_1, 1: CODE_1, 2: CODE_1}, {1: OWN, 0: blames(1), 2: blames(1)}),
    ("killed", 1, {0: CODE_1, 1: Exit(code=137), 2: CODE_1}, {0: blames(1), 2: blames(1)}),
    ("exits without a word", 2, {0: CODE_1, 1: CODE_1, 2: Exit(code=5)}, {0: blames(2), 1: blames(2)}),
    (
        "exit code of a script that leaves",
        1,
        {0: CODE_1, 1: Exit(code=3)},
        {1: LEFT, 0: blames(1, "gave_up")},
    ),
    ("ends early", 1, {0: CODE_1, 2: CODE_1}, {1: LEFT, 0: blames(1, "left"), 2: blames(1, "left")}),
    ("stopped", 1, {0: CODE_1, 2: CODE_1}, {0: blames(1, "silent"), 2: blames(1, "silent")}),
    ("a chain of waits", 1, {0: CODE_1, 2: CODE_1, 3: CODE_1}, {3: blames(0), 0: blames(2), 2: blames(1)}),
    (
        "cut off: it blames others",
        1,
        {0: CODE_1, 1: CODE_1, 2: CODE_1},
        {1: blames(0), 0: blames(1), 2: blames(1)},
    ),
    ("ended by the launcher", 1, {0: CODE_1, 1: Exit(code=143, ended=True)}, {0: blames(1, "timeout")}),
    (
        "in a circle of three",
        1,
        dict.fromkeys(range(4), CODE_1),
        {0: blames(1), 1: blames(2), 2: blames(1), 3: blames(1)},
    ),
    ("no reports: a signal before a code", 2, {0: CODE_1, 2: Exit(code=139), 1: CODE_1}, {}),
    ("no reports: whoever the launcher ended is not it", 1, {0: Exit(code=143, ended=True), 1: CODE_1}, {}),
    ("raises, and nobody needs it", 2, {0: Exit(code=143, ended=True), 2: CODE_1}, {2: OWN}),
]


@pytest.mark.parametrize(
    ("exits", "reports", "rank"), [(e, r, k) for _, k, e, r in CASES], ids=[c[0] for c in CASES]
)
def test_the_rank_at_fault_is_found_in_any_order(exits, reports, rank):
    """The launcher's last word would blame whoever ended first, and a user would look at the wrong host."""
    for order in itertools.permutations(reports):
        shuffled = {each: reports[each] for each in order}
        assert verdict(exits, shuffled).rank == rank


def test_of_two_that_accuse_each_other_the_first_accused_is_named():
    """There would be no verdict, or another one each time."""
    exits = {0: CODE_1, 1: CODE_1}
    assert verdict(exits, {0: blames(1), 1: blames(0)}).rank == 1
    assert verdict(exits, {1: blames(0), 0: blames(1)}).rank == 0


def test_nobody_is_at_fault_in_a_job_that_went_well():
    """A good job would be called a failed one."""
    assert verdict({}, {}) is None
    assert verdict({0: Exit(code=0), 1: Exit(code=0)}, {0: LEFT, 1: LEFT}) is None


def test_whoever_runs_and_is_accused_has_nothing_to_report():
    """A job would wait for the report of the rank that everybody waits for."""
    reports = {0: blames(1, "silent"), 2: blames(1, "silent")}
    assert settled([1], reports)
    assert not settled([1, 3], reports)
    assert settled([], {})


def test_the_loss_that_ended_an_elastic_job_counts_where_nobody_accuses():
    """Survivors, which the launcher ends, would be blamed for what one member did."""
    ended = {0: Exit(code=143, ended=True), 2: Exit(code=143, ended=True), 1: Exit(code=137, ended=True)}
    assert verdict(ended, {}, lost=[1]) == Verdict(rank=1)
    assert verdict(ended, {0: blames(2)}, lost=[1]).rank == 2


def test_a_rank_that_calls_something_else_is_a_cause():
    """The launcher would name whichever rank noticed it first."""
    text = "rank 0 calls all_reduce of 20 bytes, but rank 1 calls all_reduce of 28 bytes"
    assert cause_of(UsageError(text), own=0) is None
    error = UsageError(text, rank=1)
    assert cause_of(error, own=0) == (1, "failed")
    assert cause_of(error, own=1) is None
    assert UsageError("another").rank is None
