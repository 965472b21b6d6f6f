"""What an elastic job may have, and the plan of those that are left, without processes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from msgspec.structs import replace

from hocket import _native
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Begun, Gathered, Owned, Owner, Plan, Schedule, Traced
from hocket.errors import UsageError
from hocket.planning.buckets import with_codec
from hocket.planning.compile import programs
from hocket.planning.default import by_hosts, default_plan
from hocket.planning.rows import rows_max
from hocket.refusals import ELASTIC, check
from hocket.settings import Settings
from hocket.training.elastic.plans import following, has_gates, means, with_barrier
from hocket.training.features import check_elastic, of_settings, runs_elastic
from hocket.training.memory.gathered import compile_rows
from tests.sessions.plans import random_schedule


def plan(hosts: str) -> Plan:
    return default_plan([Gradient(name, (1000,), "f32") for name in "wxyz"], by_hosts(hosts))


@pytest.mark.parametrize("hosts", ["a", "aa", "ab", "aabb", "aab", "aba"])
def test_any_survivors_have_a_sound_plan_with_the_same_buckets(hosts: str) -> None:
    """Broken: some losses would end the job, with a program that the verifier refuses, or gradients in other memory."""
    before = plan("aabbcc")
    check_elastic(before)
    after = following(before, hosts)
    check_elastic(after)
    assert [bucket.parts for bucket in after.buckets] == [bucket.parts for bucket in before.buckets]
    assert (after.world, len(programs(after))) == (len(hosts), len(before.buckets))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"servers": 1}, "parameter servers"),
        ({"helpers": 1}, "helpers"),
    ],
)
def test_what_a_job_cannot_keep_after_a_loss_is_refused_by_name(asked: dict[str, Any], named: str) -> None:
    """Broken: the first loss would show that the job is not elastic."""
    with pytest.raises(UsageError, match=named):
        check(ELASTIC, of_settings(Settings(**asked)))


def test_rounded_means_stay_so_between_hosts_alone() -> None:
    """Broken: a loss would make a job slower than its user asked for, or round what never leaves a host."""
    before = plan("abc")
    pairs = list(itertools.permutations(range(3), 2))
    before = replace(before, buckets=tuple(with_codec(each, "f16", pairs) for each in before.buckets))
    assert [each.codec_links for each in following(before, "ab").buckets][:1] == [((0, 1), (1, 0))]
    for bucket in following(before, "aab").buckets:
        assert (bucket.codec, set(bucket.codec_links)) == ("f16", {(0, 2), (2, 0)})
    assert {each.codec for each in following(before, "aa").buckets} == {"none"}


def test_a_policy_that_has_no_programs_for_those_that_are_left_gives_way() -> None:
    """Broken: a plan of two worlds at once, or buckets in other memory."""
    before = plan("abc")
    traced = Traced(policy="top_k")
    before = replace(before, buckets=(replace(before.buckets[0], route=traced), *before.buckets[1:]))
    kept = following(before, "ab")
    assert (kept.buckets[0].route, kept.buckets[0].order) == (traced, (0, 1))
    after = means(kept, "ab")
    check_elastic(after)
    assert len(programs(after)) == len(before.buckets)


def test_rows_travel_on_as_many_as_are_worth_it_for_those_that_are_left() -> None:
    """Broken: ranks that are left would send rows to a rank that is gone, or every step of theirs densely."""
    table = Gradient("words", (1000, 4), "f32", sparse=True)
    before = default_plan([table], by_hosts("abcd"))
    assert runs_elastic(before)
    by_rule = [bucket.route.rows for bucket in before.buckets]
    for hosts in ("abc", "aab", "a"):
        (bucket,) = following(before, hosts).buckets
        assert sorted(bucket.order) == list(range(len(hosts)))
        assert isinstance(bucket.route, Gathered)
        assert bucket.route.rows == rows_max(table, len(hosts)) > by_rule[0]
        assert len(compile_rows(following(before, hosts), 0, table).order) == len(hosts)
    given = replace(before.buckets[0], route=replace(before.buckets[0].route, rows=7))
    (bucket,) = following(replace(before, buckets=(given,)), "ab").buckets
    assert bucket.route.rows == 7


def test_those_that_are_left_use_all_cards() -> None:
    """Broken: a host that joins, with fewer cards than others, would end the job."""
    before = plan("abc")
    alone = tuple(replace(each, cards=(1,)) for each in before.buckets)
    traced = replace(alone[0], route=Traced(policy="top_k"))
    for buckets in (alone, (traced, *alone[1:])):
        given = replace(before, buckets=buckets)
        check_elastic(given)
        assert {each.cards for each in following(given, "ab").buckets} == {None}


def test_a_barrier_in_place_of_gates_gives_the_optimizer_the_same_turns_at_the_same_steps() -> None:
    """Broken: a schedule that the engine refuses as it begins, or other gradients in some step than the plan has."""
    draw, later = random.Random(0), 0  # noqa: S311  # a seed gives the same cases again
    for _ in range(500):
        schedule = random_schedule(draw, 3)
        gated = replace(plan("ab"), schedule=schedule, safer=(Schedule(overlap=schedule.overlap),))
        made = with_barrier(gated)
        assert not has_gates(made)
        assert not _native.schedule_faults(made.schedule, 3)
        assert (made is gated) == (schedule.overlap == "barrier")
        turns, own = (
            [
                [(each.first, each.last, each.due.iteration) for each in of_bucket]
                for of_bucket in found.schedule.turns
            ]
            for found in (gated, made)
        )
        assert own == turns
        sent = [each for of_bucket in schedule.turns for each in of_bucket if isinstance(each.sent, Begun)]
        later += any(each.sent.iteration > each.due.iteration for each in sent)
    assert later, "none began with the iteration after"


def test_plans_with_state_are_refused_by_name() -> None:
    sound = plan("ab")
    bucket = sound.buckets[0]
    owned = Owned(owners=(Owner(rank=0), Owner(rank=1)))
    check_elastic(replace(sound, buckets=(replace(bucket, route=owned), *sound.buckets[1:])))
    for changed, named in (
        (replace(bucket, route=replace(owned, update="owners")), "owners that update \\(bucket 0\\)"),
    ):
        with pytest.raises(UsageError, match=named):
            check_elastic(replace(sound, buckets=(changed, *sound.buckets[1:])))
