"""Fixtures of the planner's tests."""

from __future__ import annotations

import pytest
from planner_inputs import alternating, model

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.profile import Profile


@pytest.fixture
def two_racks() -> Cluster:
    return alternating()


@pytest.fixture
def profile() -> Profile:
    return model()
