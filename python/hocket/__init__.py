"""Software-defined gradient communication for data-parallel deep learning.

`import hocket` is light: it loads neither PyTorch nor NumPy. Start with `import hocket.torch as hk`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hocket._native import __version__
from hocket.errors import (
    ArtefactError,
    Error,
    PeerError,
    PolicyError,
    ProgramError,
    RendezvousError,
    ReplicaError,
    TestbedError,
    UsageError,
)

if TYPE_CHECKING:
    from hocket.policy.kernels import kernel, library_kernel
    from hocket.policy.policy import Policy
    from hocket.tools.run.function import run

__all__ = [
    "ArtefactError",
    "Error",
    "PeerError",
    "Policy",
    "PolicyError",
    "ProgramError",
    "RendezvousError",
    "ReplicaError",
    "TestbedError",
    "UsageError",
    "__version__",
    "kernel",
    "library_kernel",
    "run",
]

_WHERE = {
    "Policy": "hocket.policy.policy",
    "kernel": "hocket.policy.kernels",
    "library_kernel": "hocket.policy.kernels",
    "run": "hocket.tools.run.function",
}
"""Names that are loaded on access: the lower layers know nothing of them."""


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module `hocket` has no attribute `{name}`")
