"""Ways of training with PyTorch, each against DistributedDataParallel on Gloo with real processes: `python -m benches ddp`."""

import sys
from pathlib import Path

import pytest

from benches.ddp.catalogue import WAYS
from benches.ddp.run import measure
from tests.support import warm

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", warm.interpreter())
        return {row.way: row for row in measure(tuple(WAYS))}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_the_same_training(rows, way):
    """A user who replaces DDP would train another model."""
    assert rows[way].met, rows[way]


def test_the_docs_list_all_of_them():
    """The table would promise less, or more, than is tested."""
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    listed = [line.split("|")[1].strip() for line in page.splitlines() if line.endswith("| yes |")]
    assert listed == list(WAYS)
