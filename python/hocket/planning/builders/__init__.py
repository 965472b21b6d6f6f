"""Ready-made builders, one per file; each is a worked example. Copy one and change it.

Most are AutoDist's strategies, under their names there (Zhang et al. 2020; Parallax: Kim et al. 2019). A variable in shards on
several hosts is one bucket whose owners have as many shares: the same bytes between the same ranks. Open choices are made as Hocket
makes them without a search: ranks as listed, rings between hosts, sparse gradients as rows.
"""

from hocket.planning.builder import Builder
from hocket.planning.builders.all_reduce import AllReduceGroups
from hocket.planning.builders.coded import Coded
from hocket.planning.builders.parallax import Parallax
from hocket.planning.builders.partitioned_all_reduce import PartitionedAllReduce
from hocket.planning.builders.partitioned_ps import PartitionedPS
from hocket.planning.builders.ps import PS
from hocket.planning.builders.ps_load_balancing import PSLoadBalancing
from hocket.planning.builders.random_axis_all_reduce import RandomAxisAllReduce
from hocket.planning.builders.uneven_partitioned_ps import UnevenPartitionedPS

BUILDERS: dict[str, type[Builder]] = {
    "ps": PS,
    "ps-load-balancing": PSLoadBalancing,
    "partitioned-ps": PartitionedPS,
    "uneven-partitioned-ps": UnevenPartitionedPS,
    "all-reduce": AllReduceGroups,
    "partitioned-all-reduce": PartitionedAllReduce,
    "random-axis-all-reduce": RandomAxisAllReduce,
    "parallax": Parallax,
}
"""AutoDist's builders by the names for `--builder`: their plans keep every promise."""

NAMED: dict[str, type[Builder]] = {**BUILDERS, "coded": Coded}
"""All builders by the names for `--builder`."""
