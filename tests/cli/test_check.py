"""`hocket check` as a person calls it: real trainings both ways, and input that cannot be compared."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.local import Local
from hocket.artefacts.plan import Schedule
from hocket.cli.check import Found, command, verdict
from hocket.errors import UsageError
from hocket.planning.alone import coded
from hocket.planning.default import by_hosts, default_plan
from hocket.tools.analysis.paired import compared, settled
from hocket.tools.analysis.to_loss import Curve, to_loss
from tests.support import warm
from tests.support.commands import completed

SCRIPT = """
import sys

import torch
import hocket.torch as hk

torch.manual_seed(0)
model = torch.nn.Linear(10, 1)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=float(sys.argv[1])))
torch.manual_seed(hk.rank(model))
for step in range(1000):
    optimizer.zero_grad()
    samples = torch.randn(16, 10)
    loss = (model(samples) - samples.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    LOG
"""


def check(
    directory: Path, *arguments: str, log: str = "hk.log(model, loss=loss.item())"
) -> subprocess.CompletedProcess[str]:
    (directory / "train.py").write_text(SCRIPT.replace("LOG", log))
    return completed(warm.hocket("check", *arguments), cwd=directory, OMP_NUM_THREADS="1")


@pytest.mark.parametrize(
    ("promise", "delay_max", "named"),
    [
        ("delayed,delay=1", 1, "With gradients applied up to 1 iteration late, training"),
        ("local,local=10", 0, "With ranks alone for 10 steps, training"),
    ],
)
def test_both_ways_are_trained_and_compared(tmp_path: Path, promise: str, delay_max: int, named: str) -> None:
    """Broken: the black-box proof would prove nothing."""
    arguments = (
        "--promise",
        promise,
        "--steps",
        "60",
        "--seeds",
        "2",
        "-o",
        "found.json",
        "train.py",
        "0.05",
    )
    ended = check(tmp_path, *arguments)
    assert ended.returncode == 0, ended.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    losses = found["losses"]
    assert len(losses["base"]) == len(losses["other"]) == 2
    # It learns, the seeds differ although the script sets its own, and so do the ways.
    assert all(0 < loss < 1 for loss in (*losses["base"], *losses["other"]))
    assert len({*losses["base"], *losses["other"]}) == 4
    assert found["schedule"]["delay_max"] == delay_max
    assert losses["low"] <= losses["difference"] <= losses["high"]
    assert "After as many steps, the loss is" in ended.stdout
    assert "with 95 % confidence" in ended.stdout
    # The loss to reach lies on the way, and both times follow from steps of the runs.
    for seed, last in zip(found["to_loss"]["seeds"], losses["base"], strict=True):
        assert seed["goal"] > last
        assert 0 < seed["base_steps"] < 60
        assert 0 < seed["base_step_s"] < 10
        assert 0 < seed["other_step_s"] < 10
    assert found["to_loss"]["ratio"] is not None or found["to_both"]["ratio"] is not None
    assert named in ended.stdout
    assert "mean loss of the last tenth" in " ".join(ended.stdout.split())


def test_a_plan_that_rounds_is_compared_with_exact_means(tmp_path: Path) -> None:
    """Broken: the synchronous run would round as the plan does, and a codec would seem to cost nothing."""
    shapes = {"weight": (1, 10), "bias": (1,)}
    gradients = [Gradient(name, shape, "f32") for name, shape in shapes.items()]
    plan = coded(default_plan(gradients, by_hosts(["a", "a"])), "top_k")
    (tmp_path / "plan.json").write_bytes(files.json_of(msgspec.structs.replace(plan, promise="lossy")))
    # Only the first rank logs.
    log = "hk.rank(model) == 0 and hk.log(model, loss=loss.item())"
    arguments = ("--plan", "plan.json", "--steps", "40", "--seeds", "2", "-o", "found.json")
    ended = check(tmp_path, *arguments, "train.py", "0.05", log=log)
    assert ended.returncode == 0, ended.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["policies"] == ["top_k"]
    # The same seeds by the same policy would give the same losses.
    assert len({*found["losses"]["base"], *found["losses"]["other"]}) == 4
    assert "With the policy top_k, training" in ended.stdout
    assert "The guard" not in ended.stdout


def test_a_script_without_losses_is_told_how_to_log_them(tmp_path: Path) -> None:
    """Broken: nothing would be compared with nothing."""
    ended = check(tmp_path, "--steps", "20", "--seeds", "2", "train.py", "0.05", log="pass")
    assert ended.returncode == 2
    assert "logs no loss" in ended.stderr
    assert "hk.log(model, loss=loss)" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "1", "train.py"], "1 is not in the range"),
        (["--steps", "5", "train.py"], "5 is not in the range"),
        (["--promise", "exact", "train.py"], "neither merged nor late"),
        (["--promise", "delayed", "train.py"], "with these amounts it is synchronous training"),
        (["--promise", "lossy", "train.py"], "policies are compared by --plan FILE"),
        (["--promise", "delayed,delay=1", "--plan", "plan.json", "train.py"], "leave one of them out"),
        (["--plan", "plan.json", "train.py"], "nothing to compare"),
        (["missing.py"], "does not exist"),
        (["true"], "no Python script"),
    ],
)
def test_wrong_input_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    """Broken: minutes of training would be lost on a typing error."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("raise SystemExit(3)")
    files.write(Path("plan.json"), default_plan([Gradient("w", (10,), "f32")], by_hosts(["a", "a"])))
    result = CliRunner().invoke(command, arguments)
    assert said in f"{result.output}{result.exception}"


def falling(speed: float, *, steps: int = 200, step_s: float = 0.1, noise: float = 0.0) -> Curve:
    """A loss that falls from 2 to 0 as 0.99 to the step, with noise that goes up and down."""
    losses = (2 * 0.99 ** (speed * at) + noise * (-1) ** at for at in range(steps))
    return Curve(losses=tuple(losses), steps=steps, step_s=step_s)


def with_last(curve: Curve, *, last: float, count: int) -> Curve:
    return Curve(losses=(*curve.losses[:-count], *([last] * count)), steps=curve.steps, step_s=curve.step_s)


def found(base: list[Curve], other: list[Curve], schedule: Schedule | None = None) -> Found:
    pairs = [[settled(each.losses) for each in of] for of in (base, other)]
    return Found(
        world=2,
        steps=200,
        way="alone",
        schedule=Schedule() if schedule is None else schedule,
        policies=("int4",),
        losses=compared(*pairs),
        to_loss=to_loss(base, other),
        to_both=to_loss(base, other, both=True),
        retreats=(),
        guard="",
    )


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize(("speed", "step_s", "time"), [(1.0, 0.1, 1.0), (2.0, 0.12, 0.6), (0.9, 0.05, 0.55)])
def test_time_is_steps_to_the_same_loss_by_their_seconds(
    noise: float, speed: float, step_s: float, time: float
) -> None:
    """Broken: a way that learns as fast a second would seem slower or faster."""
    base = [falling(1.0, noise=noise)] * 3
    compared_with = to_loss(base, [falling(speed, step_s=step_s, noise=noise)] * 3)
    assert compared_with.ratio is not None
    assert compared_with.ratio.time == pytest.approx(time, abs=0.03)
    assert compared_with.ratio.low == compared_with.ratio.high == compared_with.ratio.time
    assert compared_with.goal == pytest.approx(2 * 0.99**158, rel=0.05)


def test_losses_that_are_logged_now_and_then_count_their_steps() -> None:
    """Broken: a script that logs each tenth step, or ends before the other way does, would be compared by lines of a file."""
    seldom = falling(10.0, steps=20)
    seldom = Curve(losses=seldom.losses, steps=200, step_s=0.1)
    ratio = to_loss([falling(1.0)] * 2, [seldom] * 2).ratio
    assert ratio is not None
    assert ratio.steps == pytest.approx(1.0, abs=0.07)
    shorter = to_loss([falling(1.0)] * 2, [falling(2.0, steps=100)] * 2).ratio
    assert shorter is not None
    assert shorter.steps == pytest.approx(0.5, abs=0.03)


def test_the_verdict_is_a_sentence() -> None:
    """Broken: numbers would be left to the reader, or say what runs do not show."""
    base = [falling(1.0), falling(1.1)]
    schedule = Local(every=30).schedule(1)
    (said,) = verdict(found(base, [falling(1.0, step_s=0.08), falling(1.1, step_s=0.06)], schedule))
    assert said == (
        "With ranks alone for 30 steps and the policy int4, training reaches the loss 0.3978 of the synchronous run in 0.70 "
        "of its time (0.60 to 0.80 by seed): 1.00 of its steps, and a step takes 0.70 of one's time on this machine."
    )
    (said,) = verdict(found(base, [falling(1.0, step_s=0.08), falling(1.1, step_s=0.11)]))
    assert "in 0.95 of its time (0.80 to 1.10 by seed)" in said
    assert said.endswith("It may be chance which of both is sooner.")
    not_reached, ends = verdict(found(base, [falling(0.5, step_s=0.05)] * 2))
    assert not_reached.endswith(
        "training does not reach the loss 0.3978 of the synchronous run in the 200 steps given."
    )
    assert ends.startswith("It comes to 0.77")
    (said,) = verdict(found(base * 2, [*base, base[0], falling(0.5)]))
    assert said.endswith("1 of 4 seeds do not reach it.")
    *_, ends = verdict(found(base, [base[0], falling(0.5)]))
    assert ends.startswith("It comes to ")


def test_runs_without_a_loss_to_reach_are_told() -> None:
    """Broken: noise would be compared as if it were learning, or a run that diverges would have reached something."""
    flat = [falling(0.0, noise=0.3)] * 2
    (said,) = verdict(found(flat, [falling(1.0)] * 2))
    assert "does not fall by more than its noise in 200 steps" in said
    rising = [falling(-0.5)] * 2
    assert to_loss(rising, rising).goal is None
    base = [falling(1.0)] * 2
    diverged = [with_last(falling(2.0), last=math.nan, count=1)] * 2
    assert to_loss(base, diverged).ratio is None
    assert list(verdict(found(base, diverged))) == []
    assert to_loss(diverged, base).goal is None
    # A loss that is no number once, as before a step that a GradScaler leaves out, is no divergence.
    once = Curve(losses=(math.nan, *base[0].losses[1:]), steps=200, step_s=0.1)
    assert to_loss([once] * 2, base).ratio is not None
    assert to_loss(base, [once] * 2).ratio is not None


def test_confidence_is_students() -> None:
    """Broken: three seeds would seem as sure as thirty."""
    found = compared([1.0, 2.0, 3.0], [1.5, 2.3, 3.7])
    # Differences 0.5, 0.3, 0.7: mean 0.5, deviation 0.2, t = 4.303 for 2 degrees of freedom.
    assert found.difference == pytest.approx(0.5)
    assert found.high - found.low == pytest.approx(2 * 4.303 * 0.2 / math.sqrt(3))
    assert found.shown
    assert not compared([1.0, 2.0], [1.5, 1.9]).shown
    with pytest.raises(UsageError, match="pairs"):
        compared([1.0], [2.0])


def test_a_run_that_diverges_is_infinitely_worse() -> None:
    """Broken: nan would compare as equal to everything."""
    assert settled([1.0, 0.5, math.nan]) == math.inf
    assert settled([]) == math.inf
    assert compared([1.0, 1.0], [1.0, math.inf]).difference == math.inf
    assert compared([math.inf, 1.0], [1.0, 1.0]).difference == -math.inf
