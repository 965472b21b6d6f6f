"""Software-defined gradient communication for data-parallel deep learning.

`import hocket` is light: it loads neither PyTorch nor NumPy. Start with `import hocket.torch as hk`.
"""

from hocket._native import __version__
from hocket.errors import Error, ProgramError

__all__ = ["Error", "ProgramError", "__version__"]
