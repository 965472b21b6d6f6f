"""Ranks that train nothing and own parts of buckets: the same training as without them, and every end is said."""

import os
import sys

import msgspec
import pytest

from hocket.artefacts import files
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Due, Schedule, Turn
from hocket.cli.run import HELP
from hocket.errors import UsageError
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.training.memory.helpers import helps, number, shared
from hocket.training.memory.runnable import check_runs
from tests.support import ranks, warm
from tests.torch.helper_scripts import HELPERS, WORKERS, again_alone, alone, network, plan

pytestmark = pytest.mark.hosts

MODULE = "tests.torch.helper_scripts"
GRADIENTS = {name: Gradient(name, tuple(each.shape), "f32") for name, each in network().named_parameters()}


def flat(parameters):
    return [value for each in parameters for value in each]


@pytest.mark.parametrize("first", ["replicas", "owners"])
def test_ranks_that_only_own_change_nothing_of_what_is_learned(first, tmp_path):
    """Gradients would be lost on idle hosts, counted twice, averaged over ranks that have none, or updated by ranks that cannot."""
    ended = ranks.run(f"{MODULE}:train", WORKERS + HELPERS, tmp_path, first)
    assert ended.outcome.code == 0, ended.output
    workers, helpers = ended.returned[:WORKERS], ended.returned[WORKERS:]
    assert helpers == [{"helped": 0}] * HELPERS
    assert flat(workers[0]["parameters"]) == pytest.approx(flat(alone()), abs=1e-5)
    for each in workers:
        assert each["parameters"] == workers[0]["parameters"]
        assert each["world"] == WORKERS


@pytest.mark.parametrize("last", ["with", "without"])
def test_a_model_may_be_distributed_again(last, tmp_path):
    """Helpers would own parts of what is trained no more, or the job would end with a wait for those that own nothing any more."""
    ended = ranks.run(f"{MODULE}:again", WORKERS + HELPERS, tmp_path, last)
    assert ended.outcome.code == 0, ended.output
    workers, helpers = ended.returned[:WORKERS], ended.returned[WORKERS:]
    assert helpers == [{"helped": 0}] * HELPERS
    assert flat(workers[0]["parameters"]) == pytest.approx(flat(again_alone()), abs=1e-5)
    for each in workers:
        assert each["parameters"] == workers[0]["parameters"]
        assert (
            "ranks from 3 on are to serve, and those from 3 on help since the first model" in each["refused"]
        )


@pytest.mark.parametrize("helpers", ["help", "rest"])
def test_a_lost_worker_ends_the_helpers(helpers, tmp_path):
    """Idle hosts would wait for a header for ever, and the job would never end."""
    settings = Settings(timeout_s=20, start_timeout_s=30)
    ended = ranks.run(f"{MODULE}:die", WORKERS + HELPERS, tmp_path, helpers, settings=settings)
    assert ended.outcome.code != 0
    assert "rank 1" in ended.output


def test_what_helpers_cannot_do_is_refused_by_name():
    """A job would wait for ranks that never update, or never launch."""
    good = plan()
    check_runs(good, GRADIENTS)
    assert helps(good)
    assert [shared(good, at) for at in range(3)] == [False, True, True]
    with pytest.raises(UsageError, match="rank 3 is to update values of bucket 1, and does not train"):
        check_runs(plan(update="owners"), GRADIENTS)
    turns = tuple((Turn(first=0, last=1, due=Due(iteration=1)),) for _ in good.buckets)
    merged = msgspec.structs.replace(good, promise="merged", schedule=Schedule(period=2, turns=turns))
    with pytest.raises(UsageError, match="merged or late gradients, and ranks that do not train"):
        check_runs(merged, GRADIENTS)


def test_programs_of_two_epochs_have_numbers_of_their_own():
    """The programs of a new plan would take the numbers of those that still run."""
    numbers = {number(bucket, epoch) for bucket in range(1000) for epoch in (4, 5)}
    assert len(numbers) == 2000


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "2 helpers, and no plan says what they own"), ("ring", "has nothing for helpers")],
)
def test_helpers_without_a_plan_for_them_are_refused(given, said, tmp_path, capfdbinary):
    """Idle hosts would wait for a minute, and the error would be about a key of the store."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, hocket.torch as hk\n"
        "from tests.torch.helper_scripts import network\n"
        "model = network()\n"
        "hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))\n"
    )
    settings = Settings(helpers=2, timeout_s=20, start_timeout_s=30)
    if given is not None:
        made = plan()
        buckets = tuple(
            msgspec.structs.replace(each, route=made.buckets[0].route, order=(0, 1)) for each in made.buckets
        )
        files.write(
            tmp_path / "plan.json", msgspec.structs.replace(made, world=2, workers=(0, 1), buckets=buckets)
        )
        settings = Settings(helpers=2, timeout_s=20, start_timeout_s=30, plan=str(tmp_path / "plan.json"))
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    train = ProcessSpec(argv=warm.command(script), environment=environment)
    beside = ProcessSpec(argv=[sys.executable, *HELP], environment=environment)
    outcome = launch([train, train, beside, beside], settings=settings)
    assert outcome.code != 0
    assert said in capfdbinary.readouterr().err.decode()
