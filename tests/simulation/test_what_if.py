"""Sweeps: all combinations, in order, and a picture of them."""

import json
from xml.etree import ElementTree

from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.cli.main import hocket


def test_a_sweep_answers_every_combination_and_draws_them(tmp_path):
    """A combination would be missing, or have another's time."""
    hosts = tuple(Host(name=f"h{at}", rack=f"r{at % 2}", bandwidth_bit_per_s=1e9) for at in range(2))
    files.write(tmp_path / "cluster.toml", Cluster(hosts=hosts))
    argv = ["--cluster", str(tmp_path / "cluster.toml"), "--bandwidths", "100,1000", "--workers", "2,4"]
    argv += ["--strategies", "ring,ring-f16,two-level", "--plot", str(tmp_path / "plot.svg"), "--json"]
    done = CliRunner().invoke(hocket, ["what-if", *argv])
    assert done.exit_code == 0, done.output
    answers = json.loads(done.stdout)
    found = {
        (each["case"]["bandwidth_bit_per_s"], each["case"]["workers"], each["case"]["strategy"]): each[
            "step_s"
        ]
        for each in answers
    }
    assert len(found) == len(answers) == 12
    for workers in (2, 4):
        for name in ("ring", "ring-f16", "two-level"):
            assert found[1e9, workers, name] < found[1e8, workers, name]
        assert found[1e8, workers, "ring-f16"] < found[1e8, workers, "ring"]
    assert ElementTree.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")  # noqa: S314


def test_a_strategy_that_does_not_exist_is_refused(tmp_path):
    """A typing error would be swept in silence."""
    hosts = (Host(name="h", bandwidth_bit_per_s=1e9),)
    files.write(tmp_path / "cluster.toml", Cluster(hosts=hosts))
    argv = ["what-if", "--cluster", str(tmp_path / "cluster.toml")]
    done = CliRunner().invoke(hocket, [*argv, "--strategies", "rings"])
    assert "there is no strategy `rings`" in str(done.exception)
    done = CliRunner().invoke(hocket, [*argv, "--workers", "1"])
    assert done.exit_code == 2
