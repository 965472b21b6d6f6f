"""Fixtures of the planner's tests."""

from __future__ import annotations

import pytest

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.profile import Profile
from tests.planning.planner_inputs import alternating, model


@pytest.fixture
def two_racks() -> Cluster:
    return alternating()


@pytest.fixture
def profile() -> Profile:
    return model()
