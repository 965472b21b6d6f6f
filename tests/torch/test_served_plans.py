"""Parameter servers that hold some buckets of a plan, beside others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from hocket.artefacts import files
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Bucket, Owned, Owner, Part, Plan, Served
from hocket.artefacts.plan_check import findings
from hocket.errors import ArtefactError, UsageError
from hocket.parameter_server.choice import ParameterServer
from hocket.planning.buckets import plan_of
from hocket.policies import TopK
from hocket.settings import Settings
from hocket.tools.analysis.analyse import analyse
from hocket.tools.formats import catalogue
from hocket.training.memory.runnable import check_runs
from hocket.training.servers.roles import plan_with
from tests.support import ranks
from tests.torch.served_scripts import WORKERS
from tests.torch.test_parameter_servers import hocket_run, last_values

pytestmark = pytest.mark.hosts

SCRIPTS = "tests.torch.served_scripts"


def returned(script: str, tmp_path: Path, *arguments: str, trace: Path | None = None) -> list[object]:
    settings = Settings(timeout_s=30, start_timeout_s=30, trace=None if trace is None else str(trace))
    ended = ranks.run(f"{SCRIPTS}:{script}", WORKERS + 1, tmp_path, *arguments, settings=settings)
    assert ended.outcome.code == 0, ended.output
    *found, server = ended.returned
    assert server is None, "a server went on with the script"
    return found


@pytest.mark.parametrize("overlap", ["gates", "barrier"])
def test_served_and_reduced_buckets_train_the_model_that_plain_means_do(overlap: str, tmp_path: Path) -> None:
    """Broken: a model with some variables on servers would train another model than DDP does."""
    for far in returned("beside_others", tmp_path, overlap, trace=tmp_path / "trace"):
        assert far < 1e-5
    trace = catalogue.open_trace(tmp_path / "trace")
    with pytest.raises(ArtefactError, match="servers held some of the run's buckets"):
        catalogue.convert(trace, tmp_path / "dlc", "dlc")
    found = analyse([tmp_path / "trace"])
    assert [phase.node for phase in found.phases][:WORKERS] == list(range(WORKERS))


@pytest.mark.parametrize("overlap", ["gates", "barrier"])
def test_a_model_may_be_distributed_again(overlap: str, tmp_path: Path) -> None:
    """Broken: a server would go on with the last training, or end the job that trains without it for a while."""
    for far, other in returned("again_beside_others", tmp_path, overlap):
        assert far < 1e-5
        assert other == -1.0


def test_ranks_that_train_do_not_become_servers(tmp_path: Path) -> None:
    """Broken: a job would wait at the store for a rank that has left its training, with an error about its size."""
    ended = ranks.run(f"{SCRIPTS}:late_servers", WORKERS + 1, tmp_path)
    assert ended.outcome.code == 0, ended.output
    for told in ended.returned:
        assert "ranks from 2 on are to serve, and all ranks train since the first model" in told


@pytest.mark.parametrize("overlap", ["gates", "barrier"])
def test_a_rate_is_scaled_on_servers_and_on_workers_alike(overlap: str, tmp_path: Path) -> None:
    """Broken: layers on servers would learn at another rate than the others."""
    for far in returned("at_a_scaled_rate", tmp_path, overlap):
        assert far < 1e-5


def test_gradients_are_rounded_on_the_links_of_the_codec_and_values_are_not(tmp_path: Path) -> None:
    """Broken: a codec would round what nobody allowed, or nothing."""
    for far, from_plain in returned("with_codec", tmp_path):
        assert far < 1e-6
        assert from_plain > 1e-5


def test_each_bucket_has_a_staleness_of_its_own(tmp_path: Path) -> None:
    """Broken: one bucket that may be late would make all of them late."""
    for found in returned("staleness_of_each", tmp_path):
        assert found["together"] == pytest.approx([-(1 + 1.5 + 1.75)] * 5)
        # What a worker sees in its last step has its own three pushes, and two or three of the other's: five or six in all.
        velocity = value = 0.0
        seen = []
        for _ in range(6):
            velocity = 0.5 * velocity + 0.5
            value -= velocity
            seen.append(value)
        assert any(found["apart"] == pytest.approx([each] * 5) for each in seen[4:])


def test_an_epoch_of_a_policy_leaves_served_buckets_alone(tmp_path: Path) -> None:
    """Broken: when a policy of another bucket changes its mind, what servers hold would be loaded again, or lost."""
    for epoch, steps, found in returned("beside_a_policy", tmp_path):
        assert epoch >= 1
        assert found["served"] == found["ring"] == [-float(steps)] * 5
        assert found["scaled"][0] < -2.0 * steps


GRADIENTS = (Gradient("weight", (1, 3), "f32"), Gradient("bias", (1,), "f32"))


def plan(weight: object, bias: object, *, world: int = 3, workers: int = 2) -> Plan:
    buckets = [
        Bucket(
            parts=(Part(variable=each.name, stop=each.elements),),
            elements=each.elements,
            dtype="f32",
            route=route,  # type: ignore[arg-type]
            order=tuple(range(workers)),
            priority=at,
        )
        for at, (each, route) in enumerate(zip(GRADIENTS, (weight, bias), strict=True))
    ]
    made = plan_of(buckets, world, label="two ways")
    return msgspec.structs.replace(made, workers=tuple(range(workers)))


RING, SERVED = AllReduce(algorithm="ring"), Served(servers=(2,))


@pytest.mark.parametrize("options", [["-n", "2", "--servers", "1"], ["-n", "3"]])
def test_hocket_run_takes_a_plan_with_servers(options: list[str], tmp_path: Path) -> None:
    """Broken: a plan with served buckets could not be run from the command line, with the launcher's servers or the plan's."""
    files.write(tmp_path / "plan.json", plan(SERVED, RING))
    assert len(set(last_values(hocket_run(tmp_path, *options, "--plan", str(tmp_path / "plan.json"))))) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (plan(RING, RING), "ranks from 2 on neither train, nor own nor serve anything"),
        (plan(SERVED, Owned(owners=(Owner(rank=0),)), world=4, workers=3), "server 2 is a worker"),
        (
            msgspec.structs.replace(plan(SERVED, RING), workers=(0, 2)),
            "lacks worker 2|server 2 is a worker",
        ),
    ],
)
def test_ranks_that_neither_train_nor_serve_are_refused(wrong: Plan, said: str) -> None:
    """Broken: a job would wait for a rank that has nothing to do."""
    with pytest.raises(Exception, match=said):
        check_runs(wrong, {each.name: each for each in GRADIENTS})


def test_a_variable_that_is_partly_on_servers_is_refused() -> None:
    """Broken: the optimizer here and the one on the server would both update it."""
    half = plan(SERVED, RING)
    weight, bias = half.buckets
    parts = Part(variable="weight", stop=2), (Part(variable="weight", start=2, stop=3), *bias.parts)
    cut = (
        msgspec.structs.replace(weight, parts=(parts[0],), elements=2),
        msgspec.structs.replace(bias, parts=parts[1], elements=2),
    )
    with pytest.raises(UsageError, match="buckets 0, 1 share variables"):
        check_runs(msgspec.structs.replace(half, buckets=cut), {each.name: each for each in GRADIENTS})


def test_a_codec_for_values_needs_a_promise_that_allows_it() -> None:
    """Broken: `rounded` is of gradients, and parameters would lose bits."""
    made = plan(SERVED, RING)
    rounded = msgspec.structs.replace(made.buckets[0], codec="f16", codec_links=((0, 2), (2, 0)))
    for promise, count in (("rounded", 1), ("lossy", 0)):
        wrong = msgspec.structs.replace(made, buckets=(rounded, made.buckets[1]), promise=promise)
        assert [found.fault for found in findings(wrong, GRADIENTS)] == ["promise"] * count


@pytest.mark.parametrize(
    ("given", "policy", "choice", "said"),
    [
        (plan(RING, RING), None, ParameterServer(), "has no bucket for the 1 parameter servers"),
        (plan(SERVED, RING), None, ParameterServer(staleness=2), "says how far apart workers may be"),
    ],
)
def test_what_contradicts_a_plan_is_refused(
    given: Plan, policy: TopK | None, choice: ParameterServer, said: str
) -> None:
    """Broken: servers would have nothing to do, or hold other buckets than the plan says."""
    with pytest.raises(UsageError, match=said):
        plan_with(
            choice,
            SimpleNamespace(),  # type: ignore[arg-type]
            plan=given,
            policy=policy,
            gradients={},
            settings=Settings(),
        )
