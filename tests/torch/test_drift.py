"""Ranks that go apart while they train are found, whatever the session, and said by name."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import ranks, warm

pytestmark = pytest.mark.late

SCRIPTS = "tests.torch.drift_scripts"
HERE = Settings(timeout_s=60, start_timeout_s=30)

CASES = {
    "one weight": ("weight", 1, "plain"),
    "a frozen weight": ("frozen", 2, "plain"),
    "the learning rate": ("rate", 2, "plain"),
    "a state of its own": ("load", 0, "plain"),
    "one weight, at gates": ("weight", 1, "gates"),
    "a frozen weight, with owners": ("frozen", 2, "owners"),
    "the learning rate, late": ("rate", 1, "delayed"),
    "one weight, late": ("weight", 1, "delayed"),
    "a frozen weight, alone for a while": ("frozen", 1, "local"),
}


def test_a_rank_that_goes_apart_is_found(tmp_path: Path) -> None:
    """Replicas that differ by a bit, or by a learning rate, would train on to the end of the job, each another model."""
    calls = {name: (f"{SCRIPTS}:train", what, str(who), kind) for name, (what, who, kind) in CASES.items()}
    for name, found in ranks.by_name(calls, 3, tmp_path, settings=HERE).items():
        what, who, _ = CASES[name]
        odd, parameters, said = found[0]
        assert all(each == found[0] for each in found), name
        assert odd == [who], (name, said)
        if what == "rate":
            assert f"on rank {who} on " in said, (name, said)
            assert "`lr` of group 0 is 0.005, not 0.01 as on ranks" in said, (name, said)
        else:
            wanted = {"weight": {"2.weight"}, "frozen": {"scale"}}.get(what)
            assert set(parameters) >= (wanted or {"0.weight", "2.weight", "2.bias"}), (name, said)
            assert f"rank {who} on " in said
            assert f"`{parameters[0]}`" in said


@pytest.mark.parametrize(
    ("option", "said"), [("lr", "`lr` of group 0 is 0.3, not 0.01"), ("betas", "`betas` of")]
)
def test_optimizers_that_differ_are_told_at_the_start(option: str, said: str, tmp_path: Path) -> None:
    """Each rank would train another model from the first step on."""
    ended = ranks.run(f"{SCRIPTS}:start", 2, tmp_path, option, "1", settings=HERE)
    assert all(each is not None for each in ended.returned), ended.output
    for odd, _, text in ended.returned:
        assert (odd, said in text, "rank 1 on " in text) == ([1], True, True), text


def test_ranks_that_have_finished_are_not_apart(tmp_path: Path) -> None:
    """A job whose ranks have unequal numbers of batches would end, though nothing is wrong with it."""
    ended = ranks.run(f"{SCRIPTS}:joined", 3, tmp_path, "20", settings=HERE)
    assert ended.returned[0] is not None, ended.output
    assert all(each == ended.returned[0] for each in ended.returned), ended.output


@pytest.mark.parametrize("choice", ["warn", "off"])
def test_a_job_may_go_on_with_ranks_apart(choice: str, tmp_path: Path) -> None:
    """Whoever knows better could not train; or nobody would be told."""
    given = Settings(timeout_s=60, start_timeout_s=30, on_drift=choice)  # type: ignore[arg-type]
    ended = ranks.run(f"{SCRIPTS}:train", 2, tmp_path, "rate", "1", "plain", "300", settings=given)
    assert (ended.outcome.code, ended.returned) == (0, [None, None]), ended.output
    assert ended.output.count("replicas differ after") == (choice == "warn"), ended.output


def test_what_ranks_do_between_two_exchanges_is_their_own(tmp_path: Path) -> None:
    """Local SGD would end where ranks adapt their rates to their own data, though all go on from the same parameters."""
    ended = ranks.run(f"{SCRIPTS}:train", 2, tmp_path, "rate", "1", "local", "200", settings=HERE)
    assert (ended.outcome.code, ended.returned) == (0, [None, None]), ended.output


def test_a_rank_of_an_elastic_job_that_goes_apart_is_found(tmp_path: Path) -> None:
    """Ranks that join would get one rank's model, and gradients of another."""
    call = (f"{SCRIPTS}:train", "weight", "1")
    spec = ProcessSpec(
        argv=warm.command(Path(ranks.__file__), str(tmp_path), json.dumps([call])),
        environment={"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    out = io.BytesIO()
    launch([spec] * 3, settings=HERE, members_min=1, out=out, err=out)
    found = [json.loads((tmp_path / f"{rank}.json").read_text())[0] for rank in range(3)]
    assert all(each == found[0] for each in found), out.getvalue().decode()
    assert found[0][:2] == [[1], ["2.weight"]], out.getvalue().decode()
