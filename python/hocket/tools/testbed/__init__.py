"""Emulated cluster on this machine: a network namespace per host, a bridge per rack, rates on every link.

If the cluster file has latency, jitter or loss, a switch in user space replaces the bridges.

Any program runs in the cluster unmodified. Namespaces have no name in the file system: each is held by a process that dies with
this one, so that nothing is left behind however this process ends.
"""

from hocket.tools.testbed.bed import Testbed
from hocket.tools.testbed.clusters import example_cluster

__all__ = ["Testbed", "example_cluster"]
