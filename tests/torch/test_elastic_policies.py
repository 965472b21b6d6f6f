"""Policies in elastic jobs: what they keep goes on with the step that stands, and they are traced anew for those that are left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch import elastic_policy_scripts as scripts  # noqa: E402  # needs torch
from tests.torch import elastic_scripts  # noqa: E402
from tests.torch.test_elastic import CASES, FEW, run  # noqa: E402

pytestmark = pytest.mark.members

SCRIPT = Path(scripts.__file__)
LOST_IN = elastic_scripts.LOST_IN
EDGES = ("prepared", "launched", "entered", "backward", "done", "forward", "optimizer")


def records(directory: Path, survivors: list[int]) -> list[dict[str, Any]]:
    found = [json.loads((directory / f"{rank}.json").read_text())["records"] for rank in survivors]
    assert all(own == found[0] for own in found)
    return found[0]


def seen(directory: Path, rank: int) -> list[list[Any]]:
    noted: list[list[Any]] = json.loads((directory / f"{rank}.json").read_text())["seen"]
    return noted


@pytest.mark.parametrize("hosts", ["aaa", "abc"])
@pytest.mark.parametrize("edge", EDGES if CASES > FEW else EDGES[:2])
def test_residuals_go_on_from_the_step_that_stands(edge: str, hosts: str, tmp_path: Path) -> None:
    """Broken: a step that is reduced again would send gradients twice that were kept back, or lose them, or ranks would go on with
    programs for a rank that is gone."""
    outcome, output = run(tmp_path, list(hosts), "Watching", f"1:{LOST_IN}:{edge}", script=SCRIPT)
    assert outcome.code == 0, output
    steps = records(tmp_path, [0, 2])
    assert steps[0]["members"] == [0, 1, 2]
    assert steps[-1]["members"] == [0, 2]
    assert [each["share"] for each in steps][:: len(steps) - 1] == [scripts.SHARE, scripts.LATER_SHARE]
    for rank in (0, 2):
        told = [["added", each, 3] for each in range(3)]
        assert seen(tmp_path, rank) == [*told, ["removed", 1, 3]]
        expected = scripts.replayed(steps, "Watching")
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), expected, rtol=1e-5, atol=1e-6)


def test_ranks_go_on_with_what_a_policy_keeps_alike_on_all(tmp_path: Path) -> None:
    """Broken: PowerSGD would go on with other factors on some ranks, whose replicas differ from there on."""
    outcome, output = run(
        tmp_path, list("aabc"), "PowerSGD", f"0:{LOST_IN}:launched", f"2:{LOST_IN + 3}:done", script=SCRIPT
    )
    assert outcome.code == 0, output
    steps = records(tmp_path, [1, 3])
    assert steps[-1]["members"] == [1, 3]
    assert len({each["common"] for each in steps}) == len(steps)


def test_a_policy_that_refuses_those_that_are_left_gives_way_to_means(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a job would end with a loss that others survive, because of a policy that is for larger worlds."""
    outcome, output = run(tmp_path, list("abc"), "Particular", f"1:{LOST_IN}:launched", script=SCRIPT)
    assert outcome.code == 0, output
    steps = records(tmp_path, [0, 2])
    assert "two are too few" in output + caplog.text
    expected = scripts.replayed(steps, "Particular")
    torch.testing.assert_close(torch.load(tmp_path / "0.pt"), expected, rtol=1e-5, atol=1e-6)


def test_a_job_may_rather_end_than_go_on_without_its_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: a training that is worth nothing without its policy would go on without it."""
    monkeypatch.setenv("HOCKET_ON_REFUSAL", "end")
    outcome, output = run(tmp_path, list("abc"), "Particular", f"1:{LOST_IN}:launched", script=SCRIPT)
    assert outcome.code != 0
    assert "2 ranks are left, and a policy of the job refuses them: " in output
    assert "PolicyError" in output
    assert "two are too few" in output
    assert not (tmp_path / "0.pt").exists()


@pytest.mark.parametrize("edge", EDGES if CASES > FEW else EDGES[1:3])
def test_a_policy_with_gates_trains_as_one_with_a_barrier(
    edge: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a layer's forward would run with a sum of which a lost rank has a part, and that others reduce again without it."""
    outcome, output = run(tmp_path, list("abc"), "Priority", f"1:{LOST_IN}:{edge}", script=SCRIPT)
    assert outcome.code == 0, output
    assert (output + caplog.text).count("no layer waits at a gate") == 1
    steps = records(tmp_path, [0, 2])
    assert (steps[0]["members"], steps[-1]["members"]) == ([0, 1, 2], [0, 2])
    expected = elastic_scripts.replayed([each["members"] for each in steps])
    for rank in (0, 2):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), expected, rtol=1e-5, atol=1e-5)


def test_a_given_plan_goes_on_with_its_buckets(tmp_path: Path) -> None:
    """Broken: plans with rounded means would keep a job from being elastic, or lose that with the first rank."""
    outcome, output = run(tmp_path, list("abc"), "rounded", f"1:{LOST_IN}:launched", script=SCRIPT)
    assert outcome.code == 0, output
    steps = records(tmp_path, [0, 2])
    assert steps[-1]["members"] == [0, 2]
    assert [each["layout"] for each in steps] == [steps[0]["layout"]] * len(steps)
    expected = elastic_scripts.replayed([each["members"] for each in steps])
    exact = torch.load(tmp_path / "0.pt")
    for own, wanted in zip(exact, expected, strict=True):
        torch.testing.assert_close(own, wanted, rtol=2e-3, atol=2e-3)
    pairs = zip(exact, expected, strict=True)
    assert not all(torch.allclose(*each, rtol=1e-6, atol=1e-7) for each in pairs), "nothing was rounded"
