"""Ready-made policies, one per file; each is a worked example. Copy one and change it."""

from hocket.policies.adaptive_fusion import AdaptiveFusion
from hocket.policies.double_squeeze import DoubleSqueeze
from hocket.policies.int4 import Int4
from hocket.policies.int8 import Int8
from hocket.policies.library_inside import LibraryInside
from hocket.policies.partial_f16 import PartialF16
from hocket.policies.power_sgd import PowerSGD
from hocket.policies.priority import Priority
from hocket.policies.sparse_int2 import SparseInt2
from hocket.policies.top_k import TopK
from hocket.policies.two_level import TwoLevelRing
from hocket.policy.policy import Policy

READY_MADE: dict[str, type[Policy]] = {
    "empty": Policy,
    "partial_f16": PartialF16,
    "priority": Priority,
    "two_level": TwoLevelRing,
    "library_inside": LibraryInside,
    "adaptive_fusion": AdaptiveFusion,
    "top_k": TopK,
    "int8": Int8,
    "int4": Int4,
    "double_squeeze": DoubleSqueeze,
    "sparse_int2": SparseInt2,
    "power_sgd": PowerSGD,
}
"""Policies by the names for `--policy` and HOCKET_POLICY."""

__all__ = [
    "READY_MADE",
    "AdaptiveFusion",
    "DoubleSqueeze",
    "Int4",
    "Int8",
    "LibraryInside",
    "PartialF16",
    "PowerSGD",
    "Priority",
    "SparseInt2",
    "TopK",
    "TwoLevelRing",
]
