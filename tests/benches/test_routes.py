"""Buckets of one model on different routes, on real ranks in two racks: what `python -m benches routes` measures, small."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benches.routes import rows
from hocket.artefacts.cluster import Cluster
from hocket.tools.testbed import Testbed
from tests.support import warm

pytestmark = pytest.mark.tools

STEPS = 4


def test_mixed_routes_train_ddps_model_and_send_what_was_predicted(
    emulated: Callable[[Cluster], AbstractContextManager[Testbed]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Broken: owners, two levels and rows in one step would train another model, or a plan would be chosen by other traffic than it
    makes."""
    monkeypatch.setattr(rows, "sys", SimpleNamespace(executable=warm.interpreter()))
    with emulated(rows.RACKS) as bed:
        for contender in ("mixed", "gloo"):
            rows.run(bed, contender, "small", STEPS, tmp_path)
    assert rows.far(tmp_path) < 1e-5
    first, *others = rows.parameters(tmp_path, "mixed")
    assert all(torch.equal(first, each) for each in others), "replicas differ"
    assert rows.differing(tmp_path, "small", STEPS) == {}
