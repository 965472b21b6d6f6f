"""Hocket on Ray: a training function on the actors of a Ray cluster, in the way of Ray Train.

import hocket.ray as hr

result = hr.Trainer(train, {"lr": 0.1}, scaling_config=hr.ScalingConfig(num_workers=4)).fit()
"""

from hocket import extras

extras.need("ray", "hocket.ray")

from hocket.ray.checkpoint import Checkpoint  # noqa: E402  # what comes next may load ray
from hocket.ray.config import RunConfig, ScalingConfig  # noqa: E402
from hocket.ray.order import RankOrder  # noqa: E402
from hocket.ray.results import Report, Result  # noqa: E402
from hocket.ray.session import Context, get_checkpoint, get_context, report  # noqa: E402
from hocket.ray.trainer import Trainer  # noqa: E402

__all__ = [
    "Checkpoint",
    "Context",
    "RankOrder",
    "Report",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "Trainer",
    "get_checkpoint",
    "get_context",
    "report",
]
