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
from hocket.planning.seconds import apart, on_one_host, portions
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


def test_owners_are_refused_beside_what_changes_their_plan() -> None:
    """Parts would move to other owners by an exchange that a lost rank leaves half done."""
    owned = apart(owned_plan("ab", (1, 1)), "ab")
    check_elastic(owned)
    bucket, *others = owned.buckets
    mixed = replace(owned, buckets=(bucket, replace(bucket, route=Traced(policy="top_k")), *others))
    with pytest.raises(UsageError, match="owners that update beside a policy"):
        check_elastic(mixed)
    assert not runs_elastic(mixed)


def owned_plan(hosts: str, shares: tuple[int, ...]) -> Plan:
    sound = plan(hosts)
    owners = tuple(Owner(rank=rank, share=share) for rank, share in enumerate(shares) if share)
    bucket = replace(sound.buckets[0], route=Owned(owners=owners, update="owners"))
    return replace(sound, buckets=(bucket, *sound.buckets[1:]))


@pytest.mark.parametrize("shares", [(1, 1, 1, 1), (2, 0, 1, 1), (0, 0, 0, 1), (0, 1, 0, 0)])
@pytest.mark.parametrize("hosts", ["abcd", "aabb", "aaaa", "aaab"])
def test_parts_of_owners_go_to_their_seconds_whoever_is_lost_first(
    shares: tuple[int, ...], hosts: str
) -> None:
    """Broken: a part would go to a rank that has no copy of it, or ranks would not agree on whose it is."""
    made = apart(owned_plan(hosts, shares), hosts)
    check_elastic(made)
    own = portions(made)
    for lost in itertools.permutations(range(4), 3):
        for count in range(1, 4):
            before = [rank for rank in range(4) if rank not in lost[: count - 1]]
            alive = [rank for rank in before if rank != lost[count - 1]]
            held = [each.holders(before) for each in own]
            # Whoever is left of a part's owner and its second owns it then.
            assert all(
                each.holders(alive)[0] == next(rank for rank in two if rank in alive)
                for each, two in zip(own, held, strict=True)
            )
            kept = following(made, "".join(hosts[rank] for rank in alive), alive)
            check_elastic(kept)
            assert len(programs(by_replicas(kept))) == len(kept.buckets)
            parts = [(alive[each.ranks[each.at]], each.start, each.stop) for each in portions(kept)]
            assert covering(parts) == covering(
                [(each.holders(alive)[0], each.start, each.stop) for each in own]
            )


def by_replicas(plan: Plan) -> Plan:
    """The plan whose means go back to all: a program for each bucket."""
    return replace(
        plan,
        buckets=tuple(
            replace(each, route=replace(each.route, update="replicas"))
            if isinstance(each.route, Owned)
            else each
            for each in plan.buckets
        ),
    )


def covering(parts: list[tuple[int, int, int]]) -> list[int]:
    """By element: its owner."""
    return [
        owner for owner, start, stop in sorted(parts, key=lambda each: each[1]) for _ in range(start, stop)
    ]


def test_neighbours_are_on_different_hosts_where_they_can_be() -> None:
    """Broken: with a host, an owner and its second would be lost."""
    assert on_one_host(apart(owned_plan("aabb", (1, 1, 1, 1)), "aabb"), "aabb") == []
    assert len(on_one_host(apart(owned_plan("aaab", (1, 1, 1, 1)), "aaab"), "aaab")) > 0
    assert on_one_host(apart(owned_plan("aaaa", (1, 1, 1, 1)), "aaaa"), "aaaa") == []
