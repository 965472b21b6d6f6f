"""`hocket bench methods`: methods side by side on real ranks, and the arithmetic of its rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from click.testing import CliRunner  # noqa: E402  # needs torch

from hocket.artefacts.gradient import Gradient  # noqa: E402
from hocket.artefacts.plan import AllReduce  # noqa: E402
from hocket.cli.main import hocket  # noqa: E402
from hocket.errors import UsageError  # noqa: E402
from hocket.planning.buckets import buckets, plan_of  # noqa: E402
from hocket.planning.compile import programs  # noqa: E402
from hocket.tools.bench.methods.catalogue import METHODS, chosen, plan_of_method  # noqa: E402
from hocket.tools.bench.methods.request import Point, Run, Trained  # noqa: E402
from hocket.tools.bench.methods.result import best_rate, further, row  # noqa: E402

pytestmark = pytest.mark.tools

WORLD = 2


def test_methods_train_side_by_side(tmp_path: Path) -> None:
    """Broken: a comparison of methods would need hours before it is known to work, or compare other trainings than it says."""
    numbers, picture = tmp_path / "methods.json", tmp_path / "methods.svg"
    asked = f"bench methods -n {WORLD} --quick --model digits --methods ddp,exact,sparse --steps 20"
    ran = CliRunner().invoke(hocket, f"{asked} -o {numbers} --svg {picture}")
    assert ran.exit_code == 0, ran.output
    found = json.loads(numbers.read_text())
    ddp, exact, sparse = found["rows"]
    assert [each["method"] for each in found["rows"]] == ["ddp", "exact", "sparse"]
    assert found["tuned_on"] not in found["seeds"]
    assert len(found["seeds"]) == len(ddp["curves"]) == 2
    # Both give the optimizer the same means.
    assert exact["loss"] == pytest.approx(ddp["loss"], abs=1e-4)
    assert sparse["loss"] != pytest.approx(ddp["loss"], abs=1e-4)
    for each in found["rows"]:
        assert each["rate"] in found["rates"]
        # With two rates, either is an edge.
        assert each["at_edge"]
        for curve in each["curves"]:
            assert [point["step"] for point in curve] == [5, 10, 15, 20]
            times = [point["time_s"] for point in curve]
            assert times == sorted(times)
            assert curve[-1]["loss"] < curve[0]["loss"]
    assert ddp["over"] is None
    assert "best at an edge of the grid" in ran.output
    text = picture.read_text()
    assert text.startswith("<svg")
    assert all(f"{each['method']}, {each['loss']:.3f}" in text for each in found["rows"])


@pytest.mark.parametrize(
    "name", [name for name, each in METHODS.items() if each.by == "hocket" and not each.policy]
)
def test_each_plan_is_one_that_jobs_run(name: str) -> None:
    """Broken: a method would fail after an hour of the others' runs."""
    gradients = [[Gradient(f"w{at}", (40,), "f32")] for at in range(4)]
    plan = plan_of(buckets(gradients, AllReduce(algorithm="ring"), range(4)), 4, label="rings")
    made = plan_of_method(METHODS[name], plan)
    assert len(programs(made)) == 4
    assert (made.schedule == plan.schedule) == (name in ("exact", "rounded"))


def trained(rate: float, seed: int, *losses: float | None) -> Trained:
    points = tuple(Point(step=10 * at, time_s=float(at), loss=loss) for at, loss in enumerate(losses, 1))
    return Trained(run=Run(method="m", rate=rate, seed=seed), points=points)


def test_rows_say_what_was_measured() -> None:
    """Broken: a method that diverges, or whose grid is too narrow, would look like one that learns."""
    first = [trained(0.1, seed, 3.0, end) for seed, end in ((1, 2.0), (2, 2.2))]
    runs = [trained(0.2, seed, 2.5, 1.6, end) for seed, end in ((1, 1.5), (2, 1.7))]
    made = row("m", "", 0.2, (0.1, 0.2, 0.4), runs=runs, first=first)
    assert made.loss == pytest.approx(1.6)
    assert made.over == pytest.approx(-0.5)
    assert made.effect == pytest.approx(-0.5 / 0.02**0.5)
    # Each is to come to its own seed's loss: 2.0, and 2.2.
    assert made.reach_s == pytest.approx((1 + 0.5 / 0.9 + 1 + 0.3 / 0.9) / 2)
    assert row("m", "", 0.1, (0.1,), runs=first, first=first).reach_s == 2.0
    assert not made.at_edge
    assert row("m", "", 0.4, (0.1, 0.2, 0.4), runs=runs, first=first).at_edge
    worse = row("m", "", 0.2, (0.1, 0.2, 0.4), runs=[runs[0], trained(0.2, 2, 2.5, None)], first=first)
    assert (worse.loss, worse.over, worse.reach_s) == (None, None, None)
    assert best_rate([trained(0.1, 0, 2.0), trained(0.2, 0, 1.0), trained(0.4, 0, None)]) == 0.2
    assert best_rate([trained(0.1, 0, None)]) is None
    nothing = row("m", "", None, (0.1, 0.2), runs=[], first=first)
    assert (nothing.loss, nothing.rate, nothing.step_s, nothing.at_edge) == (None, None, None, False)


def test_a_best_rate_at_an_edge_asks_for_the_next_one() -> None:
    """Broken: a method would be compared at a rate that the grid forced on it, or the search for one never end."""
    losses = {0.1: 2.0, 0.2: 1.0, 0.4: 1.5}
    runs = [trained(rate, 0, loss) for rate, loss in losses.items()]
    assert further(runs) == ()
    assert further(runs[:2]) == (pytest.approx(0.4),)
    assert further(runs[1:]) == (pytest.approx(0.1),)
    assert further([trained(rate, 0, None) for rate in losses]) == (pytest.approx(0.05),)
    assert further(runs[:1]) == ()
    made = row("m", "", 0.4, (0.1, 0.2), runs=runs[2:], first=runs[2:], beyond=(0.8, 0.4))
    assert not made.at_edge
    assert made.beyond == (0.4, 0.8)


def test_what_cannot_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a method would be missing from the table in silence."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    methods, left_out = chosen(["ddp", "torchft"])
    assert [each.name for each in methods] == ["ddp"]
    assert left_out[0].startswith("torchft is left out: ")
    with pytest.raises(UsageError, match="there is no method `dilocco`"):
        chosen(["dilocco"])
    wrong = CliRunner().invoke(hocket, ["bench", "methods", "--learning-rates", "0.1,-1"])
    assert wrong.exit_code == 2
    assert "`-1` is not a learning rate above 0 such as 0.004" in wrong.output
