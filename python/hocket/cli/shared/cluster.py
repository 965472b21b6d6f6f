"""Option `--ray`: the place where a verb's simulations run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hocket.settings import Settings
from hocket.tools.simulation.tasks import Tasks


@contextlib.contextmanager
def tasks_at(ray_address: str | None) -> Iterator[Tasks | None]:
    """Run tasks on the Ray cluster at this address; None: as the verb does without one.

    Raises:
        MissingExtraError: Ray is not installed.
        UsageError: there is no such cluster.
    """
    if ray_address is None:
        yield None
        return
    from hocket.ray.tasks import connected  # noqa: PLC0415  # loads Ray

    with connected(ray_address, Settings.from_environment().start_timeout_s) as tasks:
        yield tasks
