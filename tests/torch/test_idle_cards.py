"""Ranks that do not train, on hosts with two network cards: what they send keeps to the cards of its bucket."""

import io
import json
from pathlib import Path

import pytest
import torch

from hocket.artefacts.cluster import Cluster, Host
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import warm
from tests.torch.cards_rank import WORKERS, alone

pytestmark = pytest.mark.hosts

SCRIPT = Path(__file__).with_name("cards_rank.py")
HOSTS = tuple(
    Host(name=name, bandwidth_bit_per_s=150e6, cards_bit_per_s=(100e6, 50e6), address=None) for name in "abc"
)


@pytest.mark.parametrize("kind", ["serves", "helps"])
def test_ranks_that_do_not_train_keep_to_the_cards_of_a_bucket(emulated, tmp_path, kind):
    """What servers and helpers send would go over a card that the plan leaves to others, and nobody would say so."""
    out = io.BytesIO()
    with emulated(Cluster(hosts=HOSTS)) as bed:
        specs = [
            ProcessSpec(
                argv=warm.command(SCRIPT, str(tmp_path), kind, "1"),
                host=host.name,
                prefix=bed.command(host.name),
                environment={"OMP_NUM_THREADS": "1"},
            )
            for host in HOSTS
        ]
        outcome = launch(
            specs,
            settings=Settings(timeout_s=60, start_timeout_s=60, interface="all"),
            store=f"{bed.address('a')}:29401",
            serve=False,
            out=out,
            err=out,
        )
    assert outcome.code == 0, out.getvalue().decode()
    for rank in range(WORKERS + 1):
        sent = json.loads((tmp_path / f"{rank}.json").read_text())
        assert sent["eth0"] < 0.1 * sent["eth1"], (rank, sent)
    for rank in range(WORKERS):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), alone(), rtol=1e-5, atol=1e-6)
