"""What tests of several folders need."""

import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hocket.artefacts.cluster import Cluster
from hocket.errors import TestbedError
from hocket.tools.testbed import Testbed

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let the cases of a file that share a fixture run in one process, which makes it once: it may be a job of minutes."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if shares(config.rootpath / file) else nodeid

    return Scheduler(config, log)


@functools.cache
def shares(file: Path) -> bool:
    return 'scope="module"' in file.read_text()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Programs that jobs of tests compile are not kept with the user's."""
    os.environ.setdefault("HOCKET_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session", autouse=True)
def _patient_with_late_ranks() -> None:
    """Beside other work, any rank may be late for a second, which is not what a test wants to read of."""
    os.environ.setdefault("HOCKET_LATE_S", "3")


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_reaches_children() -> None:
    """A run that a shell has in the background ignores SIGINT, and what tests start would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def emulated() -> Callable[[Cluster], AbstractContextManager[Testbed]]:
    """`with emulated(cluster) as testbed`; the test is skipped where this machine has no namespaces, tools or TAP devices."""

    @contextmanager
    def opened(cluster: Cluster) -> Iterator[Testbed]:
        with ExitStack() as stack:
            try:
                testbed = stack.enter_context(Testbed(cluster))
            except TestbedError as error:
                # Anything else that goes wrong with a testbed is a failure.
                if error.lacks is None:
                    raise
                pytest.skip(str(error))
            yield testbed

    return opened
