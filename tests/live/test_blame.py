"""Whom the others wait for, by what ranks have reported."""

import msgspec
import pytest

from hocket.job.live.blame import blame
from hocket.job.live.observer import Seen, View
from hocket.job.live.status import VERSION, Sent, Status
from hocket.job.store.live import Gone
from hocket.tools.top.table import ORDERS, rendered, sorted_ranks, state

pytestmark = pytest.mark.tools

STATUS = Status(
    version=VERSION,
    rank=0,
    world=4,
    member=0,
    host="a",
    elastic=False,
    process=1,
    interval_s=1.0,
    steps=50,
    doing="waiting",
    doing_s=0.01,
    step_s=0.1,
    wait_s=0.02,
    loading_s=0.001,
    worked_s=0.05,
    step_s_total=5.0,
    wait_s_total=1.0,
    loading_s_total=0.05,
    sent=(),
    epoch=0,
    plan="ring",
    promise="exact",
    resident_bytes=1 << 20,
)


def ranks(**changed):
    """Four ranks; `_2=dict(steps=1, age_s=3.0)` changes rank 2."""
    found = {}
    for rank in range(4):
        more = dict(changed.get(f"_{rank}", {}))
        age_s = more.pop("age_s", 0.5)
        found[rank] = age_s, msgspec.structs.replace(STATUS, rank=rank, member=rank, **more)
    return found


def test_nobody_is_blamed_where_all_is_well():
    """Broken: a user would look for a fault that is none."""
    assert blame(ranks(), {}) is None
    assert blame({}, {}) is None


def test_a_silent_rank_is_blamed_before_one_that_is_slow():
    """Broken: the rank that is stopped would not be found."""
    found = blame(ranks(_1={"age_s": 30.0}, _2={"wait_s": 0.0}, _3={"wait_s": 0.09}), {})
    assert (found.rank, found.how) == (1, "silent")


def test_where_nobody_reports_nobody_is_blamed():
    """Broken: when the launcher is suspended, some rank would be blamed."""
    assert blame(ranks(**{f"_{rank}": {"age_s": 30.0} for rank in range(4)}), {}) is None


def test_the_launchers_verdict_counts_more_than_who_was_lost_first():
    """Broken: of a job that has ended, a rank would be blamed that ended because of another one."""
    gone = {0: Gone(message="rank 0 gave up", fault=0)}
    ended = Gone(message="rank 2 on a failed: SIGKILL (exit code 137)", fault=2)
    found = blame(ranks(_1={"age_s": 30.0}), gone, ended)
    assert (found.rank, found.how, found.why) == (2, "failed", ended.message)


LONG = {"doing_s": 8.0}


@pytest.mark.parametrize("doing", ["loading", "forward", "backward", "training"])
def test_a_late_rank_is_blamed_with_what_it_does(doing):
    """Broken: a rank that hangs in its loader would look like all others."""
    found = blame(ranks(_0=LONG, _1=LONG, _2={"doing": doing, "doing_s": 8.0}, _3=LONG), {})
    assert (found.rank, found.how) == (2, "late")
    assert "ranks 0, 1, 3 wait for rank 2 on a" in found.why


def test_of_two_that_do_not_wait_the_one_behind_is_late():
    """Broken: a rank would be blamed that is about to wait itself."""
    behind = {"doing": "forward", "doing_s": 8.0, "steps": 49}
    found = blame(ranks(_0=LONG, _1={"doing": "backward", "doing_s": 8.0}, _2=behind, _3=LONG), {})
    assert found.rank == 2


def test_an_old_report_of_a_rank_is_no_reason_to_blame_it():
    """Broken: one that has begun to wait since its last report would be blamed for a moment."""
    assert (
        blame(ranks(_0={"doing_s": 1.0}, _2={"doing": "forward", "doing_s": 0.01, "age_s": 1.2}), {}) is None
    )


def test_a_wait_within_some_steps_is_no_lateness():
    """Broken: jobs with long steps would always have a late rank."""
    slow = {"step_s": 10.0, "wait_s": 1.0}
    every = {f"_{rank}": {**slow, "doing_s": 9.0} for rank in range(4)}
    assert blame(ranks(**{**every, "_2": {**slow, "doing": "loading", "doing_s": 9.0}}), {}) is None


def test_a_lost_rank_is_blamed_unless_the_job_goes_on():
    """Broken: an elastic job that has lost a rank long ago would hide who is slow now."""
    gone = {3: Gone(message="rank 3 ended\nhint: see", fault=3)}
    assert blame(ranks(_1={"wait_s": 0.0, "step_s": 0.1}), gone).how == "lost"
    elastic = {f"_{rank}": {"elastic": True, "wait_s": 0.06} for rank in range(4)}
    assert blame(ranks(**elastic), gone).rank == 3
    found = blame(ranks(**{**elastic, "_1": {"elastic": True, "wait_s": 0.0}}), gone)
    assert (found.rank, found.how) == (1, "slow")
    assert blame(ranks(), {3: Gone(message="rank 3 has left", fault=None)}) is None


def test_of_ranks_that_accuse_one_another_the_most_accused_is_blamed():
    """Broken: where a rank calls something else than all others, one of these would be blamed, as it says so first."""
    said = {1: 0, 0: 1, 2: 1, 3: 1}
    gone = {
        by: Gone(message=f"rank {by} gave up: rank {of} calls another", fault=of) for by, of in said.items()
    }
    found = blame({}, gone)
    assert (found.rank, found.how, found.why) == (1, "lost", "rank 0 gave up: rank 1 calls another")
    # Before the others have said so, nobody knows.
    assert blame(ranks(), {1: gone[1]}) is None
    assert blame(ranks(), {0: gone[0], 2: gone[2]}).rank == 1


def view(count):
    """A job of so many ranks that send to their neighbours; rank 7 lets others wait."""
    seen = {}
    for rank in range(count):
        sent = (Sent(peer=(rank + 1) % count, bytes=10**9, byte_per_s=1e6 * rank),)
        wait_s = 0.0 if rank == 7 else 0.05
        status = msgspec.structs.replace(
            STATUS, rank=rank, member=rank, world=count, sent=sent, wait_s=wait_s
        )
        seen[rank] = Seen(age_s=0.1, status=status)
    found = blame({rank: (each.age_s, each.status) for rank, each in seen.items()}, {})
    return View(ranks=seen, gone={}, blame=found, network_s=0.0, goodput=None)


def test_64_ranks_fit_a_terminal_of_24_lines(capsys):
    """Broken: in a large job, the late rank would be beyond the screen."""
    from rich.console import Console

    job = view(64)
    Console(width=140, highlight=False).print(rendered(job, ORDERS[0], rows_max=15, selected=40))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24 - 5
    assert any(line.startswith("40 ") for line in lines)
    assert "15 of 64 ranks" in "\n".join(lines)
    assert "for rank 7 on a" in "\n".join(lines)


def test_rows_are_sorted_as_keys_say_and_the_blamed_rank_is_first():
    """Broken: a user would look for the rank that sends most by eye."""
    job = view(9)
    by = {each.key: each for each in ORDERS}
    assert sorted_ranks(job, by["b"]) == [7, 8, 6, 5, 4, 3, 2, 1, 0]
    assert sorted_ranks(job, by["r"]) == [7, 0, 1, 2, 3, 4, 5, 6, 8]
    assert state(job, 3) == "waiting"
    silent = msgspec.structs.replace(job.ranks[3], age_s=9.0)
    assert state(msgspec.structs.replace(job, ranks={3: silent}), 3) == "silent 9 s"
