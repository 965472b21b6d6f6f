"""Packages that only parts of Hocket need, and the extras of its installation that bring them. Loads none of them."""

from __future__ import annotations

import importlib.util

from hocket.errors import MissingExtraError

EXTRAS = {
    "torch": "torch",
    "jax": "jax",
    "optax": "jax",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "ray": "ray",
    "numba": "kernels",
    "mpi4py": "mpi",
    "pyarrow": "traces",
    "google": "traces",
    "sklearn": "demo",
}
"""By the name of the module."""


def need(module: str, what: str) -> None:
    """Raise MissingExtraError when `what` needs a module that is not installed.

    >>> need("click", "this")
    """
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise missing(module, what)


def missing(module: str, what: str) -> MissingExtraError:
    """The error for a missing `module`, one of EXTRAS, that `what` needs.

    >>> print(missing("torch", "hocket.torch"))
    hocket.torch needs torch, which is not installed
    hint: pip install 'hocket[torch]'
    """
    return MissingExtraError(
        f"{what} needs {module}, which is not installed\nhint: pip install 'hocket[{EXTRAS[module]}]'",
        name=module,
    )
