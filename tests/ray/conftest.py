"""A cluster of three node processes on this machine: one that the tests connect to, without CPUs, and two of two CPUs each."""

import os
import tempfile

import pytest
import ray
from ray.cluster_utils import Cluster

STORE_BYTES = 80 << 20
CHECKS = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}


class Nodes:
    """The cluster, to which nodes may be added while others are killed."""

    def __init__(self):
        # Ray keeps its logs; paths of its sockets must be short.
        self._files = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
        os.environ["RAY_TMPDIR"] = self._files.name
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
                "_system_config": CHECKS,
            },
        )
        self.address = self.cluster.address
        self._workers = []

    def ensure(self, count=2):
        """That there are so many live workers, with nothing of a test before on them."""
        while len(self._workers) < count:
            self._workers.append(self.cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES))
        self.cluster.wait_for_nodes()

    def kill(self, node_id):
        node = next(each for each in self._workers if each.node_id == node_id)
        self._workers.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)

    def close(self):
        ray.shutdown()
        self.cluster.shutdown()
        self._files.cleanup()
        del os.environ["RAY_TMPDIR"]


@pytest.fixture(scope="session")
def cluster():
    nodes = Nodes()
    try:
        nodes.ensure()
        ray.init(address=nodes.address, log_to_driver=False)
        yield nodes
    finally:
        nodes.close()


@pytest.fixture
def nodes(cluster):
    cluster.ensure()
    return cluster
