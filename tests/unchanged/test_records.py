"""Records of one small part of this checkout: equal twice, and different wherever something is planted."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from benches.drawn.clusters import case
from hocket import testing
from hocket.artefacts.plan import Plan
from hocket.planning import compile as compiling
from hocket.settings import Settings
from hocket.training.checkpoint import saved
from tests.cli.commands import commands
from tests.unchanged import goldens, planned, recorder, records
from tests.unchanged.comparison import Comparison, Rules, compared
from tests.unchanged.planned import Planned

ROOT = Path(__file__).parents[2]
ON = case(4)
Record = dict[tuple[str, str], records.Item]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cluster, one plan, three policies on one topology, and modules that load fast."""
    loose = list(planned.plans(quick=True))[-1:]
    monkeypatch.setattr(planned, "plans", lambda *, quick: iter(loose))
    monkeypatch.setattr(planned, "on_clusters", lambda *, quick: iter([ON, small_star()]))
    monkeypatch.setattr(goldens, "modules", lambda: ["hocket", "hocket.testing", "hocket.jax"])
    monkeypatch.setattr(goldens, "TOPOLOGIES", {"pair": goldens.TOPOLOGIES["pair"]})


def small_star() -> planned.drawn.Case:
    model = planned.cases.MODELS["even"]
    return planned.drawn.Case("star", planned.cases.CLUSTERS["star"], model, helpers=0)


def record(*kinds: str) -> Record:
    found = records.collected(recorder.recorded(kinds or recorder.KINDS, quick=True), lambda kind: None)
    return {(each.kind, each.key): each for each in found}


@cache
def as_it_is() -> Record:
    return record()


def of(kind: str) -> Record:
    return {key: item for key, item in as_it_is().items() if key[0] == kind}


def test_two_records_of_one_checkout_are_equal() -> None:
    """Broken: a replay would find differences where there are none."""
    found = compared(as_it_is(), record(), Rules())
    assert found.equal
    assert set(found.items) == set(recorder.KINDS)


def test_records_do_not_say_where_the_checkout_is() -> None:
    """Broken: two worktrees of one commit would differ."""
    texts = [item.text for item in as_it_is().values()]
    assert [text for text in texts if str(ROOT) in text or tempfile.gettempdir() in text] == []


def another_pass(patch: pytest.MonkeyPatch) -> None:
    options = compiling._options

    def halved(plan: Plan, index: int, **more: bool) -> object:
        bucket = plan.buckets[index]
        smaller = msgspec.structs.replace(bucket, chunk_bytes=max(64, bucket.chunk_bytes // 2))
        buckets = (*plan.buckets[:index], smaller, *plan.buckets[index + 1 :])
        return options(msgspec.structs.replace(plan, buckets=buckets), index, **more)

    patch.setattr(compiling, "_options", halved)


def another_plan(patch: pytest.MonkeyPatch) -> None:
    chosen = planned.shortlist.chosen
    patch.setattr(
        planned.shortlist,
        "chosen",
        lambda *given: msgspec.structs.replace(chosen(*given), buckets=chosen(*given).buckets[::-1]),
    )


def another_prediction(patch: pytest.MonkeyPatch) -> None:
    predict = planned.predict

    def later(*given: object) -> object:
        found = predict(*given)
        return dataclasses.replace(found, step_s=math.nextafter(found.step_s, 1))

    patch.setattr(planned, "predict", later)


def another_order(patch: pytest.MonkeyPatch) -> None:
    solve = planned.solve

    def turned(*given: object) -> object:
        found = solve(*given)
        return msgspec.structs.replace(found, order=(*found.order[1:], found.order[0]))

    patch.setattr(planned, "solve", turned)


def another_signature(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(testing, "run", lambda policy, world=9: None)


def another_help(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commands()["hocket plan"], "help", "Something else.")


def another_setting(patch: pytest.MonkeyPatch) -> None:
    own = {each.name: each for each in dataclasses.fields(Settings)}["threads"]
    patch.setattr(own, "default", 2)


def another_promise(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(goldens.promise.WORDS, "merged", {"merge": 1})


def another_version(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(goldens.files.VERSIONS, Plan, 3)


def another_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(saved, "VERSION", 3)


def another_journal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(goldens.Journal, "records", property(lambda journal: b""))


def another_policy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(goldens, "POLICY_STEPS", 3)


PLANTED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "program": (another_pass, "bucket 0, chunk"),
    "plan": (another_plan, "star, chosen"),
    "step": (another_prediction, "star, chosen"),
    "order": (another_order, "star, ring"),
    "signature": (another_signature, "hocket.testing.run"),
    "help": (another_help, "hocket plan"),
    "setting": (another_setting, "HOCKET_THREADS"),
    "promise": (another_promise, "merged,merge=2"),
    "version": (another_version, "version 3"),
    "checkpoint": (another_checkpoint, "version 2"),
    "journal": (another_journal, "a record"),
    "policy": (another_policy, "two_level, pair, run"),
}


def test_each_kind_has_something_planted() -> None:
    """Broken: a kind could be recorded that notices nothing."""
    assert set(PLANTED) == set(recorder.KINDS)


@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_planted_is_found_and_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a change of that kind would pass as a move."""
    before = of(kind)
    change, named = PLANTED[kind]
    change(monkeypatch)
    found: Comparison = compared(before, record(kind))
    assert any(named in key for _, key in found.different), found
    assert [found.missing, found.new, found.failed] == [[], [], []]


def test_what_raises_is_recorded_and_never_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: two commits whose recorders fail alike would be called equal."""

    def raises(planned: Planned) -> Iterator[tuple[str, str]]:
        raise ValueError("no orders")
        yield

    monkeypatch.setattr(Planned, "orders", raises)
    made = record("order", "promise")
    found = compared(made, made)
    assert found.failed == [f"{side}, order: ValueError: no orders" for side in ("before", "after")]
    assert not found.equal
    assert compared(made, made, kind="promise").equal


def test_documents_name_modules_that_there_are() -> None:
    """Broken: what users are told to import would not be recorded."""
    text = "from tests.unchanged.goldens import modules, signatures; print(*modules()); print(len(list(signatures())))"
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names, count = done.stdout.splitlines()
    assert {"hocket", "hocket.torch", "hocket.jax", "hocket.ray", "hocket.keras"} <= set(names.split())
    assert int(count) > 80
