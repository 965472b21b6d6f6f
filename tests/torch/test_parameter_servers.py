"""Training with parameter servers as real processes: what it learns, how far workers drift, and what happens when ranks fail."""

import json
import os
import sys

import numpy as np
import pytest

from hocket.artefacts import trace as artefact
from hocket.settings import Settings
from hocket.tools.formats import catalogue, dlc
from tests.support import ranks, warm
from tests.support.commands import completed
from tests.torch import server_scripts

pytestmark = pytest.mark.hosts

LIMITS = {"timeout_s": 30, "start_timeout_s": 30}


def run(tmp_path, script, *arguments, workers=2, servers=1, staleness="0", ok=True, **options):
    settings = Settings(servers=servers, staleness=staleness, **{**LIMITS, **options})
    world = workers + servers
    ended = ranks.run(f"tests.torch.server_scripts:{script}", world, tmp_path, *arguments, settings=settings)
    assert (ended.outcome.code == 0) == ok, ended.output
    return ended


@pytest.mark.parametrize(
    ("optimizer", "servers", "wide"),
    [("sgd", 2, 1024), ("adam", 2, 1024), ("adamw", 1, 32), ("rmsprop", 1, 32)],
)
def test_synchronous_training_ends_where_one_process_ends(tmp_path, optimizer, servers, wide):
    """A user who adds servers would train another model, with a split parameter, a rate of its own or closures above all."""
    ended = run(tmp_path, "train", optimizer, str(wide), servers=servers)
    first, second, *serving = ended.returned
    assert serving == [None] * servers, "a server went on with the script"
    assert first == second, "workers end with different parameters"
    np.testing.assert_allclose(first, server_scripts.alone(optimizer, wide), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("servers", [1, 2])
def test_a_model_may_be_distributed_again(tmp_path, servers):
    """Fine-tuning in stages would need a job for each, or servers would go on with the parameters, or the momentum, of before."""
    trace = tmp_path / "trace"
    first, second, *serving = run(tmp_path, "again", servers=servers, trace=str(trace)).returned
    assert serving == [None] * servers, "a server went on with the script"
    assert first == second, "workers end with different parameters"
    np.testing.assert_allclose(first, server_scripts.again_alone(), rtol=2e-4, atol=1e-5)
    noted = [json.loads(line) for line in artefact.metrics_file(trace, 2).read_text().splitlines()]
    assert len(noted) == 2 * server_scripts.STEPS, "the trace of the first training has steps of the second"
    catalogue.convert(catalogue.open_trace(trace), tmp_path / "dlc", "dlc")


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_servers_step_at_the_rate_for_the_number_of_ranks(tmp_path, optimizer):
    """Servers would train at the script's own rate, or at the one of the step before, with closures above all."""
    ended = run(tmp_path, "train", optimizer, "32", "scales")
    expected = server_scripts.alone(optimizer, 32, server_scripts.half_later)
    np.testing.assert_allclose(ended.returned[0], expected, rtol=2e-4, atol=1e-5)
    assert not np.allclose(expected, server_scripts.alone(optimizer, 32), rtol=2e-3, atol=1e-4)


def test_bounded_staleness_is_never_exceeded(tmp_path):
    """A fast worker would train on, and a user's K would mean nothing."""
    ended = run(tmp_path, "uneven", "0.05", staleness="2", servers=1, trace=str(tmp_path / "trace"))
    fast, slow, _ = ended.returned
    assert np.isfinite([fast["norm"], slow["norm"]]).all()
    noted = [
        json.loads(line) for line in artefact.metrics_file(tmp_path / "trace", 2).read_text().splitlines()
    ]
    assert max(each["ahead"] for each in noted) == 2
    assert {each["iteration"] for each in noted if each["worker"] == 0} == set(range(server_scripts.STEPS))
    catalogue.convert(catalogue.open_trace(tmp_path / "trace"), tmp_path / "dlc", "dlc")
    assert furthest(tmp_path / "dlc" / "server0.txt") == 2


def furthest(path):
    """How far ahead of the slowest worker one was, by the records of a server, when a value left for it."""
    pushes, most = {}, 0
    for batch in dlc.Reader(path, strict=True).batches():
        columns = [
            batch.column(name).to_pylist()
            for name in ("key", "peer", "operation_num", "time_sec", "time_usec")
        ]
        rows = sorted(zip(*columns[3:], dlc.codes(batch).tolist(), *columns[:3], strict=True))
        for _, _, code, key, worker, number in rows:
            own = pushes.setdefault(key, {0: 0, 1: 0})
            if code == dlc.RECV | dlc.SERVER and number >= 2:
                own[worker] += 1
            if code == dlc.PULL | dlc.SERVER and number >= 2:
                most = max(most, own[worker] - min(own.values()))
    return most


@pytest.mark.timing
def test_asynchronous_workers_do_not_wait(tmp_path):
    """One slow worker would hold up a job that was asked to be asynchronous."""
    ended = run(tmp_path, "uneven", "0.2", staleness="any", workers=3)
    first, second, slow, _ = (each and each["ended_s"] for each in ended.returned)
    half = slow[server_scripts.STEPS // 2]
    assert first[-1] < half
    assert second[-1] < half


def test_a_push_is_applied_at_its_own_workers_learning_rate(tmp_path):
    """Two workers whose schedules are apart would both train at the rate of the one that began its step last."""
    first, _, _ = run(tmp_path, "own_rate", str(tmp_path), staleness="any").returned
    # Each push counts half of the mean: 1 from worker 0, three times 1/4 from worker 1.
    assert first == -(1 + 3 * 0.25) / 2


def test_one_update_of_several_learning_rates_is_refused(tmp_path):
    """A synchronous update would take one of the rates by chance."""
    ended = run(tmp_path, "different_rates", ok=False)
    assert "workers 0 and 1 push `" in ended.output
    assert "'lr': 0.1" in ended.output
    assert "'lr': 0.2" in ended.output


def test_a_worker_with_less_data_leaves_in_order(tmp_path):
    """The others would wait for it for ever, or average with nothing."""
    first, second, _ = run(tmp_path, "fewer", "4").returned
    assert np.allclose(np.subtract(first, second), -0.05 * 2 * (server_scripts.STEPS - 4))


def test_accumulation_and_buffers(tmp_path):
    """`no_sync` would lose gradients, or running means would begin differently; a step of what was not pushed would be lost."""
    first, second, _ = run(tmp_path, "accumulate").returned
    assert first == second
    began, refused, weight = first
    assert began == [1.0] * 3
    assert "was not pushed" in refused
    assert np.allclose(weight, 1 - (1 + 2 / np.sqrt(1 + 1e-5)))


@pytest.mark.parametrize(
    ("who", "how", "named"),
    [
        ("worker", "kill", "rank 1 "),
        ("worker", "raise", "gave up: ValueError: the data is rotten"),
        ("server", "kill", "parameter server 0: rank 2 on "),
    ],
)
def test_who_dies_is_named(tmp_path, who, how, named):
    """A job would hang when a machine fails, or nobody would know which."""
    ended = run(tmp_path, "die", who, how, ok=False)
    assert named in ended.output


def test_a_worker_that_stalls_is_named(tmp_path):
    """The others would blame the server that holds their values back."""
    ended = run(tmp_path, "die", "nobody", "stall", ok=False, timeout_s=4)
    assert "rank 1 on " in ended.output
    assert "did not push" in ended.output


def test_what_servers_cannot_do_is_refused(tmp_path):
    """A model would train otherwise than its script says, silently."""
    clip, scaled, second, changed = run(tmp_path, "limits").returned[0]
    assert "they were pushed" in clip
    assert "scaled gradients were pushed" in scaled
    assert "have one already" in second
    assert "`nesterov`" in changed


SCRIPT = """
import hocket.torch as hk
import torch

model = torch.nn.Linear(3, 1)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
print(f"worker {hk.rank(model)} of {hk.world(model)} ended at {model.state_dict()['bias'].item():.3f}")
"""


def hocket_run(tmp_path, *options):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = warm.hocket("run", *options, str(tmp_path / "train.py"))
    return completed(command, PYTHONPATH=os.pathsep.join(sys.path))


def last_values(done):
    """Answers of two workers at the end."""
    assert done.returncode == 0, done.stderr
    said = [line.split("] ")[1].split(" at ") for line in sorted(done.stdout.splitlines())]
    assert [who for who, _ in said] == ["worker 0 of 2 ended", "worker 1 of 2 ended"]
    return [value for _, value in said]


def test_hocket_run_starts_servers_beside_workers(tmp_path):
    """A user would have to start servers by hand, or a server would run the script and train."""
    assert len(last_values(hocket_run(tmp_path, "-n", "2", "--servers", "2", "--staleness", "1"))) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--staleness", "4"], "a staleness of 4 needs parameter servers"),
        (["--servers", "1", "--staleness", "soon"], "staleness `soon`: a whole number of iterations"),
        (
            ["--servers", "1", "--policy", "top_k"],
            "policy TopK and parameter servers: each would have all buckets",
        ),
    ],
)
def test_wrong_options_are_refused_before_anything_trains(tmp_path, options, said):
    """A user would train in another way than asked, or wait for ranks that cannot meet."""
    done = hocket_run(tmp_path, "-n", "2", *options)
    assert done.returncode != 0
    assert said in done.stderr
    assert "ended" not in done.stdout
