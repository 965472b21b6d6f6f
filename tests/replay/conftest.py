"""Runs to replay."""

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.cli.plan import command as plan
from hocket.cli.simulations.plan import command as simulate
from tests.replay.replay_inputs import ITERATIONS, STEPS, ParameterServer


@pytest.fixture
def trace(tmp_path):
    """A run of two hosts, in virtual time: the same directory that a real one leaves."""
    cluster = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=2e8) for name in "ab"))
    files.write(tmp_path / "cluster.toml", cluster)
    (tmp_path / "profile.json").write_bytes(
        msgspec.json.encode(
            {
                "model": "m", "world": 2, "steps": 1, "forward_s": 0.01, "backward_s": 0.02, "optimizer_s": 0.005,
                "step_s": 0.035,
                "gradients": [
                    {"name": name, "shape": [300_000], "dtype": "f32", "ready_s": ready_s, "needed_s": 0.0}
                    for name, ready_s in (("w0", 0.03), ("w1", 0.02))
                ],
            }
        )
    )  # fmt: skip
    given = ["--cluster", str(tmp_path / "cluster.toml"), "--profile", str(tmp_path / "profile.json")]
    for command, arguments in (
        (plan, [*given, "-o", str(tmp_path / "plan.json")]),
        (
            simulate,
            [str(tmp_path / "plan.json"), *given, "--steps", str(STEPS), "--trace", str(tmp_path / "out")],
        ),
    ):
        result = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    return tmp_path / "out"


@pytest.fixture
def nodes(tmp_path):
    job = ParameterServer()
    end_us = 0
    for at in range(ITERATIONS):
        end_us = job.iteration(at, end_us)
    return job.write(tmp_path)


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e8) for name in "abc"))
    files.write(tmp_path / "cluster.toml", made)
    return made
