"""The guard of ranks that step alone, in real jobs: they go back together from what diverges, and never from what does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hocket.artefacts.exchange import read_exchanges
from hocket.artefacts.trace import read
from hocket.settings import Settings
from hocket.tools.report import build
from hocket.tools.report import numbers as report_numbers
from tests.support import ranks

torch = pytest.importorskip("torch")

from tests.torch import drifting_scripts as scripts  # noqa: E402  # needs torch
from tests.torch.test_elastic import run  # noqa: E402

pytestmark = pytest.mark.late

SCRIPTS = "tests.torch.drifting_scripts"
SETTINGS = Settings(timeout_s=30, start_timeout_s=30)
LATE = {"late": 30, "all": 10}


def returned(
    script: str, tmp_path: Path, *arguments: str, settings: Settings = SETTINGS
) -> tuple[list[Any], str]:
    ended = ranks.run(f"{SCRIPTS}:{script}", 2, tmp_path, *arguments, settings=settings)
    assert ended.outcome.code == 0, ended.output
    assert ended.returned[0] == ended.returned[1]
    return ended.returned[0], ended.output


@pytest.mark.parametrize(
    ("name", "logs", "kind"),
    [
        ("average", "logged", "sgd"),
        ("average", "silent", "sgd"),
        ("average", "logged", "momentum"),
        ("outer", "silent", "sgd"),
        ("late", "silent", "sgd"),
        ("fragments", "logged", "momentum"),
        ("mix", "silent", "sgd"),
        ("all", "logged", "momentum"),
        ("weighed", "logged", "sgd"),
    ],
)
def test_ranks_retreat_from_steps_alone_that_diverge(name: str, logs: str, kind: str, tmp_path: Path) -> None:
    """Broken: a number of steps alone that the model forbids would diverge without a word. With a logged loss, the first exchange
    shows it, before the anchor takes it; without, the second one."""
    (retreated, alone, held, ended, counts), output = returned("steep", tmp_path, name, "100", logs, kind)
    exchanges = 1 if logs == "logged" else 2
    assert retreated <= 100 * exchanges + LATE.get(name, 0) + 1
    assert alone == 1
    assert ended < 1.0
    if logs == "logged":
        assert held < 10.0
    assert counts[0] == counts[1]
    assert output.count("ranks exchange after each step from now on, instead of 100") == 1


@pytest.mark.parametrize("logs", ["logged", "silent"])
def test_few_steps_alone_that_diverge_are_ended_within_some_updates(logs: str, tmp_path: Path) -> None:
    """Broken: where turns are short, so little happens in each that no two would show it."""
    (retreated, alone, *_), _ = returned("steep", tmp_path, "average", "4", logs, "sgd")
    assert alone == 1
    assert retreated <= 4 * 30


@pytest.mark.parametrize(("name", "logs"), [("average", "logged"), ("all", "silent")])
def test_steps_alone_that_every_rank_bears_go_on(name: str, logs: str, tmp_path: Path) -> None:
    """Broken: unlike data alone would count as divergence, and jobs on slow networks would wait."""
    (alone, held), _ = returned("easy", tmp_path, name, "20", logs)
    assert alone == 20
    assert held < 1.0


@pytest.mark.parametrize("logs", ["logged", "silent"])
def test_steps_alone_grow_where_exchanges_keep_them(logs: str, tmp_path: Path) -> None:
    """Broken: a wrong number of steps alone would cost whole turns, or ranks that bear them would exchange too often for good."""
    found, _ = returned("grown", tmp_path, "grows", "40", logs)
    assert [alone for alone, _ in found] == [5, 10, 20, 40]
    # Each number begins up to three iterations after the exchange that has shown enough.
    assert found[-1][1] <= 35 * (3 if logs == "logged" else 4) + 10


def test_ranks_that_begin_with_few_steps_alone_lose_few(tmp_path: Path) -> None:
    """Broken: ranks would make all steps of a long turn before anybody looks at them."""
    (retreated, alone, held, ended, _), _ = returned("steep", tmp_path, "grows", "100", "logged", "sgd")
    assert (retreated, alone) == (1, 1)
    assert held < 10.0
    assert ended < 1.0


@pytest.mark.parametrize("logs", ["logged", "silent"])
def test_a_training_resumes_with_its_guard(logs: str, tmp_path: Path) -> None:
    """Broken: a resumed job would forget what it has seen, or that it has retreated."""
    (*same, before, after), _ = returned("resumed", tmp_path, logs)
    assert same == [True, True]
    assert (before, after) == (1 if logs == "logged" else 40, 1)


def test_a_guard_that_is_off_says_what_it_sees(tmp_path: Path) -> None:
    """Broken: who asks for a demonstration would get a retreat, or not hear of divergence."""
    off = replace(SETTINGS, guard="off")
    (retreated, alone, *_), output = returned(
        "steep", tmp_path, "average", "100", "logged", "sgd", settings=off
    )
    assert (retreated, alone) == (None, 100)
    assert output.count("nothing is done about it, as HOCKET_GUARD=off") == 1


def test_nobody_judges_without_a_sentinel(tmp_path: Path) -> None:
    """Broken: HOCKET_SENTINEL=0 would not mean what it says."""
    off = replace(SETTINGS, sentinel=False)
    (retreated, alone, *_), output = returned(
        "steep", tmp_path, "average", "100", "silent", "sgd", settings=off
    )
    assert (retreated, alone) == (None, 100)
    assert "from the anchor" not in output


def test_a_trace_has_each_exchange_and_the_retreat(tmp_path: Path) -> None:
    """Broken: nobody could tell from numbers why ranks exchange more often than was asked for."""
    traced = replace(SETTINGS, trace=str(tmp_path / "trace"))
    returned("steep", tmp_path, "average", "100", "silent", "sgd", settings=traced)
    first, second = read_exchanges(tmp_path / "trace")
    assert (first.step, first.steps, first.taken) == (100, 100, True)
    assert (second.step, second.steps, second.taken) == (200, 100, False)
    # Each rank moves half of the directions, so that the mean is half as long as each, squared a quarter, and noise is small.
    assert first.agreement == pytest.approx(0.5, abs=0.01)
    assert first.moved == pytest.approx(first.drift * 0.5**0.5, rel=0.01)
    assert second.drift > 16 * first.drift
    shown = report_numbers(tmp_path / "trace")["delays"]["exchanges"]
    assert [(each["steps"], each["taken"]) for each in shown] == [(100, True), (100, False)]
    assert "no: training diverged" in build(tmp_path / "trace").read_text()
    (change,) = read(tmp_path / "trace").changes()
    assert (change.what, change.step) == ("retreated", 200)
    assert "away from the anchor in 100 steps alone" in change.why


@pytest.mark.parametrize("victim", ["1:39:launched", "1:79:launched", "1:20:forward", "1:79:prepared"])
def test_those_that_are_left_judge_alike(victim: str, tmp_path: Path) -> None:
    """Broken: ranks of an elastic job would have no guard, or judge an exchange twice that a loss interrupts, and go apart."""
    outcome, output = run(
        tmp_path, list("abc"), victim, script=Path(scripts.__file__), trace=str(tmp_path / "trace")
    )
    assert outcome.code == 0, output
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 2))
    assert first == second
    assert len(first) == scripts.LOST_STEPS
    assert first[-1][0] == 1
    exchanges = read_exchanges(tmp_path / "trace")
    assert [each.step for each in exchanges] == [40, 80, 120][: len(exchanges)]
    assert [each.taken for each in exchanges] == [True] * (len(exchanges) - 1) + [False]
