"""Training on Ray's actors: `make test-ray`, in an environment of its own, on a cluster of several node processes."""

import ast
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hocket.ray as hr
from examples import train_ray
from hocket.ray.job import begin
from hocket.ray.watch import Watch
from hocket.ray.workers import started
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.ray import functions

FOUR = hr.ScalingConfig(num_workers=4)
SETTINGS = Settings(start_timeout_s=60, timeout_s=60)
EXAMPLE = Path(train_ray.__file__)


def run_example(workers, address, folder):
    """The script with so many workers, on the cluster there, in that folder."""
    return subprocess.run(
        [sys.executable, str(EXAMPLE), str(workers)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
        env={**os.environ, "RAY_ADDRESS": address},
    )


def fit(function, config=None, *, directory, scaling=FOUR, settings=SETTINGS, **options):
    return hr.Trainer(
        function,
        config,
        scaling_config=scaling,
        run_config=hr.RunConfig(storage_path=directory, name="run"),
        settings=settings,
        **options,
    ).fit()


@pytest.fixture(scope="module")
def example(cluster, tmp_path_factory):
    """The example's training on 2 x 2 workers."""
    cluster.ensure()
    return fit(train_ray.train, train_ray.CONFIG, directory=tmp_path_factory.mktemp("example"))


def test_workers_train_what_hocket_run_trains(example):
    """Ray's ranks would be another job than the launcher's: the parameters have the same bits."""
    out = io.BytesIO()
    argv = [sys.executable, str(EXAMPLE)]
    outcome = launch([ProcessSpec(argv=argv)] * 4, settings=SETTINGS, out=out, err=out)
    assert outcome.code == 0, out.getvalue().decode()
    last = out.getvalue().decode().strip().splitlines()[-1]
    launched = ast.literal_eval(last[last.index("{") :])
    assert launched["step"] == train_ray.CONFIG["steps"]
    assert launched == example.metrics


def test_the_script_trains_on_the_cluster_of_ray_address(example, nodes, tmp_path):
    """What users copy would not run: its function is the script's own, so it travels with its code."""
    ran = run_example(4, nodes.address, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{example.metrics}; checkpoint: {tmp_path}" in ran.stdout


def test_reports_and_checkpoints_arrive(example):
    """A training's results would be lost with its workers."""
    assert {(each.rank, each.index) for each in example.reports} == {
        (r, i) for r in range(4) for i in range(3)
    }
    ends = {each.metrics["parameters"] for each in example.reports if each.index == 2}
    assert ends == {example.metrics["parameters"]}
    assert sorted(each.name for each in example.path.iterdir()) == [
        f"checkpoint_00000{at}" for at in range(3)
    ]
    assert [each.name for each in example.checkpoint.path.iterdir()] == ["state.pt"]


def test_a_training_goes_on_from_a_checkpoint(example, nodes, tmp_path):
    """Workers on other machines would not find its files."""
    middle = hr.Checkpoint.from_directory(example.path / "checkpoint_000000")
    result = fit(train_ray.train, train_ray.CONFIG, directory=tmp_path, resume_from_checkpoint=middle)
    assert result.metrics == example.metrics
    assert len(result.reports) == 8


def test_a_function_without_hocket_runs_and_ranks_of_a_node_are_neighbours(nodes, tmp_path):
    """Two levels would cut through nodes; what needs no gradients could not run; torch would not know its ranks."""
    result = fit(functions.where, {"a": 1}, directory=tmp_path)
    by_rank = sorted((each.metrics for each in result.reports), key=lambda metrics: metrics["rank"])
    assert [(each["rank"], each["world"], each["config"]) for each in by_rank] == [
        (rank, 4, {"a": 1}) for rank in range(4)
    ]
    of_ranks = [each["node"] for each in by_rank]
    assert of_ranks[0] == of_ranks[1] != of_ranks[2] == of_ranks[3]
    assert [each["torch"][:2] for each in by_rank] == [(str(rank), "4") for rank in range(4)]
    assert len({each["torch"][2] for each in by_rank}) == 1
    assert result.checkpoint is None
    assert not result.path.exists()


def test_actors_train_again(nodes):
    """A process that has left its job would be refused by the next one, or meet the old one's ranks."""
    sums = []
    with started(FOUR, 60) as members:
        for _ in range(3):
            begin(members, functions.some_steps, ({"steps": 5},), SETTINGS)
            Watch(members, lambda rank, each: sums.append(each.metrics["sum"])).until_the_end()
    assert len(sums) == 12
    assert len(set(sums)) == 1


def test_nothing_else_loads_ray():
    """Every rank of every job would start a second later, where Ray is installed."""
    modules = "hocket.cli.main, hocket.torch, hocket.tools.simulation.shortlist, hocket.cli.plan, hocket.cli.simulations.sweep"
    script = f"import sys, {modules}; print('ray' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_torchs_own_calls_find_their_job(nodes, tmp_path):
    """Scripts of torch.distributed would need a launcher."""
    result = fit(functions.torch_backend, directory=tmp_path)
    assert [each.metrics["sum"] for each in result.reports] == [12.0] * 4


def test_ranks_may_speak_tls(nodes, tmp_path):
    """The secret of the job would not be its own."""
    settings = Settings(start_timeout_s=60, timeout_s=60, tls=True)
    result = fit(functions.some_steps, {"steps": 3}, directory=tmp_path, settings=settings)
    assert len({each.metrics["sum"] for each in result.reports}) == 1


def test_parameter_servers_are_workers_too(nodes, tmp_path):
    """Their way out, SystemExit, would count as a failure."""
    settings = Settings(start_timeout_s=60, timeout_s=60, servers=1)
    result = fit(functions.some_steps, {"steps": 3}, directory=tmp_path, settings=settings)
    assert [each.rank for each in sorted(result.reports, key=lambda each: each.rank)] == [0, 1, 2]


def test_files_of_several_ranks_are_one_checkpoint(nodes, tmp_path):
    """Each rank has state of its own to keep."""
    two = hr.ScalingConfig(num_workers=2)
    result = fit(functions.files_of, ["a", "b"], directory=tmp_path, scaling=two)
    assert {each.name: each.read_text() for each in result.checkpoint.path.iterdir()} == {
        "a": "of 0",
        "b": "of 1",
    }
