"""Pushes that switches of the testbed sum: frames that are lost, sent again, and compared with what was simulated."""

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.cli.main import hocket
from tests.replay.replay_inputs import ITERATIONS
from tests.support.commands import completed

pytestmark = pytest.mark.hosts

HOCKET = str(Path(sys.executable).with_name("hocket"))


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_switches_of_a_testbed_sum_what_workers_push(nodes, cluster, tmp_path, loss):
    """A switch would add a worker twice or never, or a lost frame stop the job: the server compares each value of each sum."""
    lossy = tuple(
        msgspec.structs.replace(each, loss=loss, rack="q" if each.name == "a" else "r")
        for each in cluster.hosts
    )
    files.write(tmp_path / "lossy.toml", msgspec.structs.replace(cluster, hosts=lossy))
    said = completed(
        [
            HOCKET,
            "trace",
            "replay",
            *nodes,
            "--cluster",
            tmp_path / "lossy.toml",
            "--aggregate",
            "64:1400",
            "--json",
        ]
    )
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert len(found["replayed_s"]) == ITERATIONS - 1
    # 600 kB of each worker at 100 Mbit/s on its own link, and 1.2 MB of answers on the server's.
    assert min(found["replayed_s"]) > 0.14


def test_pieces_that_are_no_frames_are_refused(nodes, cluster, tmp_path):
    """Frames would be cut off, or a share of them be lost that no network loses."""
    argv = ["trace", "replay", *map(str, nodes), "--cluster", str(tmp_path / "cluster.toml"), "--aggregate"]
    for given, words in {"8:1469": "up to 1468", "8:1026": "four bytes", "8:1024:0.1": "uplink_loss"}.items():
        refused = CliRunner().invoke(hocket, [*argv, given])
        assert refused.exit_code != 0
        assert words in str(refused.exception), given
