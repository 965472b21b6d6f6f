"""Rows of sites: what is sent is counted over the iterations that count, and learned as the contender trains."""

import pytest

from benches.delays import sites, sites_loss
from benches.delays.sites import Result
from benches.uplinks import Uplinks
from hocket.artefacts.local import Local, localized
from hocket.errors import Error

pytestmark = pytest.mark.tools


def test_bytes_are_those_between_two_times():
    """Broken: bytes of warming up, or of another contender, would count as a contender's."""
    uplinks = Uplinks()
    for at_s, count in ((1.0, 100), (2.0, 100), (3.0, 300), (4.0, 300)):
        uplinks.add(at_s, count)
    assert uplinks.sent(2.0, 3.0) == 200
    assert uplinks.sent(1.5, 2.5) == 100
    with pytest.raises(Error, match="no samples"):
        uplinks.sent(2.0, 5.0)


def result(name, iteration_s, sent_bytes, synchronous=False):
    return Result(
        name=name,
        label=name,
        synchronous=synchronous,
        iterations_s=(iteration_s,),
        never_s=(0.1,),
        uplink_bytes=(sent_bytes,),
    )


def test_waits_and_bytes_have_their_targets():
    """Broken: a row would say met of ranks that wait, or of bytes beyond the target."""
    found = [
        result(sites.DDP, 2.0, 2e7, synchronous=True),
        result(sites.HOOK, 1.0, 1e7, synchronous=True),
        result("4 bits, 30 steps", 0.102, 2e5),
        result("4 bits, 30 steps, waiting", 0.12, 2e5),
        result("planned for x", 0.104, 3e5),
    ]
    rows = {each.what: each for each in sites.rows("M", found)}

    def met(name, what):
        (row,) = (each for each in rows.values() if each.what.startswith(f"M, {name}: {what}"))
        return row.met, pytest.approx(row.value, rel=2e-3)

    wait = "share of the time that ranks wait"
    assert met("4 bits, 30 steps", wait) == (True, 0.0196)
    assert met("planned for x", wait) == (False, 0.0385)
    assert met("4 bits, 30 steps, waiting", wait) == (True, 0.1667)
    assert met("4 bits, 30 steps", "bytes of DDP") == (False, 100)
    assert met("planned for x", "iteration over the shortest") == (True, 1.0196)


def test_the_larger_model_has_its_parameters_and_time():
    """Broken: rows would be of another model than they say."""
    profile = sites.CASES[sites.LARGE].profile()
    assert sum(each.elements for each in profile.gradients) == pytest.approx(25.5e6, rel=0.005)
    assert profile.forward_s + profile.backward_s == pytest.approx(0.8)


def test_a_plan_is_learned_by_its_turns():
    """Broken: learning would be of another schedule than the measured one."""
    case = sites.CASES[sites.SMALL]
    all_of = sites.contenders(sites.network(), case.profile(), case)
    plan = next(each for each in all_of if each.name == "4 bits, 30 steps, waiting").variants[0].plan
    assert sites_loss.way_of(plan).schedule == Local(every=30).schedule(1)
    apart = localized(plan, Local(every=8, late=2, fragments=4))
    way = sites_loss.way_of(apart)
    assert way.schedule == apart.schedule
    assert {way.bucket_at(at / 5000) for at in range(5000)} == set(range(len(plan.buckets)))
