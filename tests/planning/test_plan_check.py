"""Plans: what is refused, by name, and that files of version 1 are read as they were meant."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.artefacts import files
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import (
    AllReduce,
    Begun,
    Bucket,
    Due,
    Evidence,
    Gathered,
    Owned,
    Owner,
    Part,
    Plan,
    Rule,
    Schedule,
    Served,
    Traced,
    Turn,
    TwoLevel,
)
from hocket.artefacts.plan_check import check, findings
from hocket.artefacts.upgrade import current
from hocket.errors import ArtefactError, UsageError
from hocket.planning.buckets import plan_of
from hocket.planning.compile import bucket_program
from hocket.training.memory.runnable import check_runs

MODEL = (Gradient("w", (10, 10), "f32"), Gradient("b", (10,), "f32"), Gradient("h", (4,), "f16"))


def bucket(*parts: Part, elements: int, dtype: str = "f32", **changes: object) -> Bucket:
    fields = {"route": AllReduce(algorithm="ring"), "order": (0, 1, 2), "priority": 0} | changes
    return Bucket(parts=parts, elements=elements, dtype=dtype, **fields)


def mixed(**changes: object) -> Plan:
    """Most of `w` around the ring, the rest with `b` on owners one of which does not train, `h` rounded."""
    buckets = (
        bucket(Part(variable="w", stop=60), elements=60),
        bucket(
            Part(variable="w", start=60),
            Part(variable="b"),
            elements=50,
            route=Owned(
                owners=(Owner(rank=0), Owner(rank=3, share=2)), update="owners", via=TwoLevel(stations=(2, 1))
            ),
            order=(0, 1, 2, 3),
            rule=Rule(order="given", groups="racks", owners="idle hosts"),
        ),
        bucket(Part(variable="h"), elements=4, dtype="f16", codec="f16", codec_links=((0, 1),)),
    )
    fields = {
        "world": 4,
        "workers": (0, 1, 2),
        "buckets": buckets,
        "promise": "rounded",
        "evidence": Evidence(predicted_step_s=0.11, bound_step_s=0.1, digests={"cluster": "abc"}),
        "label": "mixed",
        "reason": "",
    }
    return Plan(**(fields | changes))


def with_bucket(index: int, **changes: object) -> Plan:
    sound = mixed()
    changed = msgspec.structs.replace(sound.buckets[index], **changes)
    buckets = (*sound.buckets[:index], changed, *sound.buckets[index + 1 :])
    return msgspec.structs.replace(sound, buckets=buckets)


def scheduled(*turns: Turn, **changes: object) -> Plan:
    fields = {"period": 2, "turns": (turns,) * 3, "delay_max": 1} | changes
    return mixed(schedule=Schedule(**fields), promise="uncorrected")


def test_a_sound_plan_of_mixed_routes_passes() -> None:
    """Broken: what the planner mixes could not be written down."""
    assert list(findings(mixed(), MODEL)) == []
    assert mixed().evidence.gap == pytest.approx(0.1)
    merged = scheduled(Turn(first=0, last=1, due=Due(iteration=2, at="gate")), overlap="gates")
    assert list(findings(merged, MODEL)) == []
    sent = Begun(iteration=1, point="begin")
    each = (
        Turn(first=0, last=0, sent=sent, due=Due(iteration=1)),
        Turn(first=1, last=1, due=Due(iteration=2)),
    )
    assert list(findings(scheduled(*each), MODEL)) == []


REFUSED: dict[str, tuple[str, str, Callable[[], Plan]]] = {
    "no worker": ("world", "workers", lambda: mixed(workers=())),
    "worker outside": ("world", "workers", lambda: mixed(workers=(0, 1, 4))),
    "elements in no part": (
        "elements",
        "w: elements 60 to 61 are in no part",
        lambda: with_bucket(1, parts=(Part(variable="w", start=61), Part(variable="b"))),
    ),
    "elements in two parts": (
        "elements",
        "w: element 60 is in two parts",
        lambda: with_bucket(0, parts=(Part(variable="w", stop=61),), elements=61),
    ),
    "variable in no part": (
        "elements",
        "b is in no part",
        lambda: with_bucket(1, parts=(Part(variable="w", start=60),)),
    ),
    "end before start": (
        "elements",
        "elements 5 to 4",
        lambda: with_bucket(0, parts=(Part(variable="w", start=5, stop=4),)),
    ),
    "mixed dtypes": (
        "dtype",
        "bucket 0 of f32 has h, which is f16",
        lambda: with_bucket(0, parts=(Part(variable="w", stop=60), Part(variable="h"))),
    ),
    "unknown dtype": ("dtype", "dtype f8", lambda: with_bucket(2, dtype="f8")),
    "owner outside": (
        "route",
        "owner 4 is not of a world of 4",
        lambda: with_bucket(1, route=Owned(owners=(Owner(rank=4),))),
    ),
    "no owner": ("route", "owners []", lambda: with_bucket(1, route=Owned(owners=()))),
    "owner not in the order": (
        "route",
        "its order lacks owner 3",
        lambda: with_bucket(0, route=Owned(owners=(Owner(rank=3),))),
    ),
    "nothing owned": (
        "route",
        "shares of owners",
        lambda: with_bucket(1, route=Owned(owners=(Owner(rank=0, share=0),))),
    ),
    "stations": (
        "route",
        "stations",
        lambda: with_bucket(1, route=Owned(owners=(Owner(rank=0),), via=TwoLevel(stations=(2,)))),
    ),
    "unknown algorithm": ("route", "`star`", lambda: with_bucket(0, route=AllReduce(algorithm="star"))),
    "groups": (
        "route",
        "groups of [2, 2] for 3 ranks",
        lambda: with_bucket(0, route=AllReduce(algorithm="two_level", sizes=(2, 2))),
    ),
    "a server that trains": (
        "route",
        "server 0 is a worker",
        lambda: with_bucket(0, route=Served(servers=(0,))),
    ),
    "no rows": ("route", "0 rows", lambda: with_bucket(0, route=Gathered(rows=0, row_elements=1))),
    "order with a rank twice": ("order", "each once", lambda: with_bucket(0, order=(0, 1, 1, 2))),
    "order without a worker": ("order", "lacks worker 2", lambda: with_bucket(0, order=(0, 1))),
    "order with an idle rank": ("order", "rank 3 of its order", lambda: with_bucket(0, order=(0, 1, 2, 3))),
    "codec on no pair": ("codec", "no pair", lambda: with_bucket(2, codec_links=((1, 1),))),
    "links without a codec": ("codec", "no codec", lambda: with_bucket(0, codec_links=((0, 1),))),
    "rounding": (
        "promise",
        "bucket 2 has f16 on links: `exact` does not allow codec=f16",
        lambda: mixed(promise="exact"),
    ),
    "a promise with amounts": (
        "promise",
        "without amounts: exact, rounded, merged, delayed, local, uncorrected, lossy, not `delayed,delay=1`",
        lambda: mixed(promise="delayed,delay=1"),
    ),
    "a policy": ("promise", "goes by policy topk", lambda: with_bucket(0, route=Traced(policy="topk"))),
    "staleness": (
        "promise",
        "bucket 0 is served with staleness: `rounded` does not allow delay=2",
        lambda: with_bucket(0, route=Served(servers=(3,), staleness=2)),
    ),
    "merging": (
        "promise",
        "iterations are merged: `rounded` does not allow merge=2",
        lambda: msgspec.structs.replace(
            scheduled(Turn(first=0, last=1, due=Due(iteration=1)), delay_max=0), promise="rounded"
        ),
    ),
    "delay": (
        "promise",
        "with nothing in their place: `merged` does not allow uncorrected=1",
        lambda: msgspec.structs.replace(
            scheduled(Turn(first=0, last=1, due=Due(iteration=2))), promise="merged"
        ),
    ),
    "an iteration in no turn": (
        "schedule",
        "gradients of iteration 1 are in 0 turns",
        lambda: scheduled(Turn(first=0, last=0, due=Due(iteration=0))),
    ),
    "applied too late": (
        "schedule",
        "applied 2 iterations late",
        lambda: scheduled(Turn(first=0, last=1, due=Due(iteration=3))),
    ),
    "applied too early": (
        "schedule",
        "applied -1 iterations late",
        lambda: scheduled(Turn(first=0, last=1, due=Due(iteration=0))),
    ),
    "sent before it is ready": (
        "schedule",
        "before it is ready",
        lambda: scheduled(
            Turn(first=0, last=1, sent=Begun(iteration=0, point="begin"), due=Due(iteration=2))
        ),
    ),
    "three slots": (
        "schedule",
        "3 turns are open",
        lambda: scheduled(
            *(Turn(first=at, last=at, due=Due(iteration=at + 2)) for at in range(2)), delay_max=2
        ),
    ),
    "turns of other buckets": (
        "schedule",
        "turns of 1 buckets",
        lambda: mixed(schedule=Schedule(turns=((Turn(first=0, last=0, due=Due(iteration=0)),),))),
    ),
    "another model": (
        "model",
        "v is not a parameter of this one",
        lambda: with_bucket(0, parts=(Part(variable="v", stop=60),)),
    ),
    "a smaller model": (
        "model",
        "w has 100 elements, not 200",
        lambda: with_bucket(1, parts=(Part(variable="w", start=60, stop=200), Part(variable="b"))),
    ),
    "another size": (
        "model",
        "bucket 0 has 59 elements, and its parts 60",
        lambda: with_bucket(0, elements=59),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_sound_is_refused_by_name(name: str) -> None:
    """Broken: gradients would be lost or added twice, or a job would hang, by a plan that somebody edited."""
    fault, message, made = REFUSED[name]
    found = list(findings(made(), MODEL))
    assert any(each.fault == fault and message in each.message for each in found), found
    with pytest.raises(ArtefactError, match="plan: "):
        check(made(), MODEL)


@settings(max_examples=200)
@given(data=st.data())
def test_each_element_is_in_one_part_or_it_is_said(data: st.DataObject) -> None:
    """Broken: some cut of a variable would lose an element, or send one twice, and pass."""
    cuts = data.draw(st.lists(st.integers(0, 20), min_size=0, max_size=6).map(sorted))
    edges = [0, *cuts, 20]
    ranges = list(pairwise(edges))
    moved = data.draw(st.integers(-1, 1))
    which = data.draw(st.integers(0, len(ranges) - 1))
    start, stop = ranges[which]
    ranges[which] = (start, stop + moved)
    parts = [Part(variable="v", start=start, stop=stop) for start, stop in ranges]
    buckets = tuple(
        bucket(part, elements=part.stop - part.start) for part in data.draw(st.permutations(parts))
    )
    counted = [sum(part.start <= at < part.stop for part in parts) for at in range(21)]
    sound = counted == [1] * 20 + [0] and all(part.start <= part.stop for part in parts)
    made = mixed(world=3, buckets=buckets)
    assert (not list(findings(made, [Gradient("v", (20,), "f32")]))) == sound


FIRST = {
    "version": 1,
    "world": 3,
    "order": [2, 0, 1],
    "buckets": [
        {
            "gradients": ["w", "b"],
            "elements": 110,
            "dtype": "f32",
            "priority": 0,
            "synchroniser": {
                "algorithm": "two_level",
                "sizes": [2, 1],
                "codec": "f16",
                "codec_links": [[2, 1]],
                "chunk_bytes": 4096,
            },
        },
        {
            "gradients": ["h"],
            "elements": 4,
            "dtype": "f16",
            "priority": 1,
            "synchroniser": {"algorithm": "ring"},
        },
    ],
    "label": "first",
    "reason": "it was",
    "predicted_step_s": 0.5,
    "candidates": [{"label": "first", "predicted_step_s": 0.5, "measured_step_s": 0.6}],
}


def test_files_of_the_first_version_are_read(tmp_path: Path) -> None:
    """Broken: plans of the last release could not be run, or would be other ones."""
    (tmp_path / "first.json").write_bytes(msgspec.json.encode(FIRST))
    plan = files.read(tmp_path / "first.json", Plan)
    check(plan, MODEL)
    assert (plan.version, plan.workers, plan.promise) == (2, (0, 1, 2), "rounded")
    assert plan.predicted_step_s == 0.5
    assert plan.evidence.candidates[0].measured_step_s == 0.6
    first, second = plan.buckets
    assert first == bucket(
        Part(variable="w"),
        Part(variable="b"),
        elements=110,
        route=AllReduce(algorithm="two_level", sizes=(2, 1)),
        order=(2, 0, 1),
        codec="f16",
        codec_links=((2, 1),),
        chunk_bytes=4096,
    )
    assert (second.order, second.route) == ((2, 0, 1), AllReduce(algorithm="ring"))
    files.write(tmp_path / "second.json", plan)
    assert files.read(tmp_path / "second.json", Plan) == plan
    with pytest.raises(msgspec.ValidationError, match="unknown field `speed`"):
        current(FIRST | {"speed": 9})


def test_what_is_damaged_is_refused(tmp_path: Path) -> None:
    """Broken: a slip of the keyboard would be ignored, or a plan that is not sound would be run."""
    unknown = msgspec.to_builtins(mixed()) | {"speed": 9}
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(unknown))
    with pytest.raises(ArtefactError, match="unknown field `speed`"):
        files.read(tmp_path / "plan.json", Plan)
    files.write(tmp_path / "plan.json", mixed(promise="exact"))
    with pytest.raises(ArtefactError, match="`exact` does not allow codec=f16"):
        files.read(tmp_path / "plan.json", Plan)
    files.write(tmp_path / "plan.json", mixed(version=3))
    with pytest.raises(ArtefactError, match="has version 3: this Hocket reads up to 2"):
        files.read(tmp_path / "plan.json", Plan)


def test_routes_without_one_program_are_refused() -> None:
    """Broken: gradients would be reduced where values should be updated, or a policy's bucket by nobody."""
    owned = Owned(owners=(Owner(rank=2), Owner(rank=0)))
    one = bucket(Part(variable="w"), elements=100, order=(0, 2, 1), route=owned)
    for route, said in (
        (msgspec.structs.replace(owned, update="owners"), "has two programs"),
        (Traced(policy="topk"), "is `traced`"),
    ):
        with pytest.raises(UsageError, match=said):
            bucket_program(0, plan_of([msgspec.structs.replace(one, route=route)], 3, label=""))


WEIGHTS = {each.name: each for each in MODEL}


def test_what_no_session_runs_is_refused_by_name() -> None:
    """Broken: a plan would run as another one than it says."""
    whole = bucket(Part(variable="w"), Part(variable="b"), elements=110)
    half = bucket(Part(variable="h"), elements=4, dtype="f16")
    with pytest.raises(UsageError, match="ranks from 3 on neither train, nor own nor serve"):
        check_runs(mixed(buckets=(whole, half)), WEIGHTS)
    served = msgspec.structs.replace(whole, route=Served(servers=(3,)))
    check_runs(mixed(buckets=(msgspec.structs.replace(served, cards=(0,)), half)), WEIGHTS)


def test_schedules_that_no_session_runs_are_refused_by_name() -> None:
    """Broken: late gradients would be applied at another place than the plan says, or in part."""
    late = (Turn(first=0, last=0, due=Due(iteration=1)),)
    at_gates = (Turn(first=0, last=0, due=Due(iteration=1, at="gate")),)
    on_time = (Turn(first=0, last=0, due=Due(iteration=0)),)
    half = bucket(Part(variable="h"), elements=4, dtype="f16")
    whole = bucket(Part(variable="w"), Part(variable="b"), elements=110)
    by_policy = bucket(Part(variable="h"), elements=4, dtype="f16", route=Traced(policy="top_k"))
    parts = (
        bucket(Part(variable="w", stop=60), elements=60),
        bucket(Part(variable="w", start=60), Part(variable="b"), elements=50),
    )

    def plan(*turns: tuple[Turn, ...], buckets: tuple[Bucket, ...], overlap: str = "barrier") -> Plan:
        schedule = Schedule(turns=turns, delay_max=1, together=False, overlap=overlap)
        return mixed(world=3, buckets=buckets, promise="lossy", schedule=schedule)

    for refused, said in (
        (plan(late, late, buckets=(whole, by_policy)), "bucket 1 does not reduce means"),
        (plan(late, on_time, late, buckets=(*parts, half)), "parts of `w` are in buckets 0 and 1"),
    ):
        with pytest.raises(UsageError, match=said):
            check_runs(refused, WEIGHTS)
    check_runs(plan(late, late, on_time, buckets=(*parts, half)), WEIGHTS)
    check_runs(plan(at_gates, late, buckets=(whole, half), overlap="gates"), WEIGHTS)
