"""`hocket check` as a person calls it: real trainings both ways, and input that cannot be compared."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.gradient import Gradient
from hocket.cli.check import command
from hocket.errors import UsageError
from hocket.planning.default import by_hosts, default_plan
from hocket.tools.analysis.paired import compared, settled
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
        ("delayed,delay=1", 1, "With gradients applied up to 1 iteration late, the loss is"),
        ("local,local=10", 0, "With ranks alone for 10 steps, the loss is"),
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
    assert "with 95 % confidence" in ended.stdout
    assert named in ended.stdout
    assert "mean of the last tenth of 60 steps" in " ".join(ended.stdout.split())


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
