"""Who is late for all others, from look to look."""

import pytest

from hocket.job.live.late import FIRST_S, USUAL_S, GoesOn, Lateness
from hocket.job.store.live import Gone
from tests.live.test_blame import ranks

pytestmark = pytest.mark.tools

LEAST_S = 3.0
WAITS = {"doing": "waiting", "doing_s": 5.0}
BUSY = {"doing": "forward", "doing_s": 5.5}
SHORT = {"doing": "waiting", "doing_s": 0.01}


def looked(lateness, now_s=100.0, gone=(), **changed):
    """What is told of four ranks, of which those named are changed and the others wait long."""
    every = {f"_{rank}": {**WAITS, **changed.get(f"_{rank}", {})} for rank in range(4)}
    return lateness.look(ranks(**every), {rank: Gone(message="gone", fault=rank) for rank in gone}, now_s)


def names(told):
    return [(type(each).__name__, each.rank) for each in told]


@pytest.mark.parametrize("doing", ["loading", "forward", "backward", "training"])
def test_a_rank_is_late_when_all_others_wait(doing):
    """Broken: nobody would hear of a hang before the time-out."""
    (found,) = looked(Lateness(LEAST_S), _2={"doing": doing, "doing_s": 5.5})
    assert (found.rank, found.waiting, found.silent) == (2, (0, 1, 3), False)
    assert found.waited_s == pytest.approx(5.5)  # with the age of the report


def test_what_all_do_at_once_makes_nobody_late():
    """Broken: an evaluation or a checkpoint of all ranks would be warned of."""
    every = {f"_{rank}": {"doing": "loading", "doing_s": 50.0} for rank in range(4)}
    assert Lateness(LEAST_S).look(ranks(**every), {}, 0.0) == ()
    # Three of them are not late for one.
    assert Lateness(LEAST_S).look(ranks(**{**every, "_0": WAITS}), {}, 0.0) == ()


def test_where_all_wait_nobody_is_late():
    """Broken: a slow network would be blamed on a rank."""
    assert looked(Lateness(LEAST_S)) == ()


def test_all_others_must_have_waited():
    """Broken: a rank that has just come would be one of those that wait, and another one blamed too early."""
    assert looked(Lateness(LEAST_S), _2=BUSY, _3=SHORT) == ()


def test_two_of_four_may_be_late():
    """Broken: two ranks of a host that hangs would hide each other."""
    assert names(looked(Lateness(LEAST_S), _2=BUSY, _1=BUSY)) == [("Late", 1), ("Late", 2)]


def test_a_silent_rank_is_late_whatever_it_did():
    """Broken: a rank that is stopped while it waits would look like those that wait for it."""
    (found,) = looked(Lateness(LEAST_S), _2={"age_s": 30.0, **SHORT})
    assert (found.rank, found.silent, found.waiting) == (2, True, (0, 1, 3))
    # Of a rank that does something and one whose reports are late, the former is at fault.
    for before in (SHORT, {"doing": "loading", "doing_s": 0.01}):
        assert names(looked(Lateness(LEAST_S), _2=BUSY, _1={"age_s": 30.0, **before})) == [("Late", 2)]


def test_long_steps_need_more_patience():
    """Broken: jobs with steps of a minute would be warned of in each."""
    every = {f"_{rank}": {"step_s": 10.0, "wait_s": 1.0} for rank in range(4)}
    assert looked(Lateness(LEAST_S), **{**every, "_2": {**every["_2"], **BUSY}}) == ()
    late = {rank: {**each, "doing_s": 29.0} for rank, each in every.items()}
    late["_2"] = {**every["_2"], "doing": "forward", "doing_s": 30.0}
    assert names(looked(Lateness(LEAST_S), **late)) == [("Late", 2)]


def test_a_rank_that_is_late_in_each_step_is_late():
    """Broken: as the steps of all get long by it, patience would grow with what it makes them wait."""
    every = {f"_{rank}": {"step_s": 5.5, "wait_s": 5.4} for rank in range(4)}
    assert names(looked(Lateness(LEAST_S), **{**every, "_2": {"step_s": 5.5, "wait_s": 0.0, **BUSY}})) == [
        ("Late", 2)
    ]


def test_the_first_step_has_time():
    """Broken: a rank that compiles or loads longer than others would be warned of."""
    first = {f"_{rank}": {"step_s": None, "wait_s": None, "steps": 0} for rank in range(4)}
    starting = {**first["_2"], "doing": "starting", "doing_s": 20.0}
    assert looked(Lateness(LEAST_S), **{**first, "_2": starting}) == ()
    long = {rank: {**each, "doing_s": FIRST_S + 1} for rank, each in first.items()}
    assert names(looked(Lateness(LEAST_S), **{**long, "_2": starting})) == [("Late", 2)]


def test_ranks_that_do_not_train_are_never_late():
    """Broken: parameter servers, and processes that are yet to join, would be warned of."""
    assert looked(Lateness(LEAST_S), _2={"trains": False, **BUSY}) == ()
    assert looked(Lateness(LEAST_S), _2={"doing": "starting", "doing_s": 50.0}) == ()
    assert names(looked(Lateness(LEAST_S), _2={"trains": False, "age_s": 30.0, **BUSY})) == [("Late", 2)]


def test_an_occurrence_is_told_once_and_its_end():
    """Broken: a log would fill with one rank, or nobody would learn that it goes on."""
    lateness = Lateness(LEAST_S)
    assert names(looked(lateness, 100.0, _2=BUSY)) == [("Late", 2)]
    assert looked(lateness, 101.0, _2=BUSY) == ()
    (back,) = lateness.look(ranks(), {}, 106.0)
    assert isinstance(back, GoesOn)
    assert back.late_s == pytest.approx(106.0 - 0.5 - (100.0 - 5.5))
    assert lateness.look(ranks(), {}, 107.0) == ()


def test_a_rank_that_is_late_again_is_told_when_it_is_for_twice_as_long():
    """Broken: jitter would be a line each time, or a hang after it be no line at all."""
    lateness = Lateness(LEAST_S)
    told = []
    for now_s in range(0, 100, 10):
        told += looked(lateness, float(now_s), _2=BUSY)
        told += lateness.look(ranks(), {}, now_s + 5.0)
    assert names(told) == [("Late", 2), ("GoesOn", 2)]
    lasts_s = told[1].late_s
    hangs = {f"_{rank}": {**WAITS, "doing_s": 2 * lasts_s - 1.0} for rank in range(4)}
    assert looked(lateness, 200.0, **{**hangs, "_2": BUSY}) == ()
    longer = {rank: {**WAITS, "doing_s": 2 * lasts_s} for rank in hangs}
    (found,) = looked(lateness, 201.0, **{**longer, "_2": BUSY})
    assert found.unsaid == 9
    lateness.look(ranks(), {}, 210.0)
    # What was usual is forgotten.
    assert looked(lateness, 220.0, _1=BUSY) == ()
    lateness.look(ranks(), {}, 221.0)
    assert names(looked(lateness, 220.0 + USUAL_S, _1=BUSY)) == [("Late", 1)]


def test_an_excused_rank_has_more_time():
    """Broken: each checkpoint of one rank would be warned of, or a hang in it never."""
    lateness = Lateness(LEAST_S)
    assert names(looked(lateness, 100.0, _2=BUSY)) == [("Late", 2)]
    lateness.excuse(2)
    assert looked(lateness, 101.0, _2=BUSY) == ()
    long = {f"_{rank}": {**WAITS, "doing_s": FIRST_S + 1} for rank in range(4)}
    assert names(looked(lateness, 125.0, **{**long, "_2": BUSY})) == [("Late", 2)]
    # One that evaluates needs no excuse.
    assert looked(Lateness(LEAST_S), _2={**BUSY, "doing": "evaluating"}) == ()
    assert names(looked(Lateness(LEAST_S), **{**long, "_2": {**BUSY, "doing": "evaluating"}})) == [
        ("Late", 2)
    ]


def test_ranks_come_back_one_after_the_other_from_what_all_have_done():
    """Broken: after an evaluation of a minute, ranks that need some seconds more would be warned of."""
    back = {f"_{rank}": {**WAITS, "worked_s": 10.0} for rank in range(4)}
    assert looked(Lateness(LEAST_S), **{**back, "_2": BUSY}) == ()
    long = {rank: {**each, "doing_s": 24.0} for rank, each in back.items()}
    assert names(looked(Lateness(LEAST_S), **{**long, "_2": BUSY})) == [("Late", 2)]


def test_ranks_may_have_gone_on_since_they_reported():
    """Broken: what took a moment would be warned of when it is over, as no report says so yet."""
    short = {f"_{rank}": {"doing": "waiting", "doing_s": 2.9, "age_s": 0.9} for rank in range(4)}
    assert looked(Lateness(LEAST_S), **{**short, "_2": BUSY}) == ()
    # So may the one that was busy, and be waiting for the network, as they do.
    before = {f"_{rank}": {**WAITS, "age_s": 0.1} for rank in range(4)}
    assert looked(Lateness(LEAST_S), **{**before, "_2": {**BUSY, "age_s": 2.5, "interval_s": 3.0}}) == ()


def test_the_first_to_say_that_it_goes_on_is_not_late():
    """Broken: whenever a wait ends, the rank whose report comes first would be warned of, as the others seem to wait for it."""
    lateness = Lateness(LEAST_S)
    assert names(looked(lateness, _2=BUSY)) == [("Late", 2)]
    later = {f"_{rank}": {**WAITS, "age_s": 0.9} for rank in range(4)} | {"_2": {**BUSY, "age_s": 0.9}}
    goes_on = {"doing": "loading", "doing_s": 0.01, "age_s": 0.05}
    assert looked(lateness, 100.4, **{**later, "_0": goes_on}) == ()
    # When the others have waited for it anew, it is late: twice as long as the first one was.
    assert names(lateness.look(ranks(), {}, 101.0)) == [("GoesOn", 2)]
    anew = {f"_{rank}": {**WAITS, "doing_s": 50.0} for rank in range(4)}
    assert names(looked(lateness, 200.0, **{**anew, "_0": {**BUSY, "doing_s": 50.5}})) == [("Late", 0)]


def test_a_rank_that_should_report_and_does_not_is_late():
    """Broken: a rank that is stopped would be warned of seconds later than one that loops."""
    early = {f"_{rank}": {**WAITS, "doing_s": 0.9, "age_s": 0.1} for rank in range(4)}
    (found,) = Lateness(0.5).look(ranks(**{**early, "_2": {**SHORT, "age_s": 0.9}}), {}, 100.0)
    assert (found.rank, found.silent) == (2, True)
    # One that was heard after the others had begun to wait is no reason for it.
    long = {rank: {**each, "doing_s": 3.0} for rank, each in early.items()}
    assert Lateness(2.0).look(ranks(**{**long, "_2": {**SHORT, "age_s": 1.9}}), {}, 100.0) == ()
    # Its report may be a little late.
    assert Lateness(0.5).look(ranks(**{**early, "_2": {**SHORT, "age_s": 0.7}}), {}, 100.0) == ()


def test_a_rank_that_is_gone_does_not_go_on():
    """Broken: a killed rank would be said to go on."""
    lateness = Lateness(LEAST_S)
    looked(lateness, _2=BUSY)
    assert looked(lateness, 101.0, gone=(2,), _2=BUSY) == ()
    assert lateness.look(ranks(), {2: Gone(message="gone", fault=2)}, 106.0) == ()
