"""Software-defined gradient communication for data-parallel deep learning.

`import hocket` is light: it loads neither PyTorch nor NumPy. Start with `import hocket.torch as hk`.
"""

from hocket._native import __version__
from hocket.errors import (
    ArtefactError,
    Error,
    PeerError,
    ProgramError,
    RendezvousError,
    TestbedError,
    UsageError,
)

__all__ = [
    "ArtefactError",
    "Error",
    "PeerError",
    "ProgramError",
    "RendezvousError",
    "TestbedError",
    "UsageError",
    "__version__",
]
