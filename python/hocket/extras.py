"""Packages that only parts of Hocket need, and the extras of its installation that bring them. Loads none of them."""

from __future__ import annotations

import importlib.util
import urllib.parse
from pathlib import Path

import msgspec

from hocket import typed
from hocket.errors import MissingExtraError

EXTRAS = {
    "torch": "torch",
    "jax": "jax",
    "optax": "jax",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "ray": "ray",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "numba": "kernels",
    "mpi4py": "mpi",
    "pyarrow": "traces",
    "google": "traces",
    "prometheus_client": "metrics",
    "sklearn": "demo",
}
"""Module's name → extra."""

CHECKOUT = Path(__file__).parents[2]
"""Directory of the checkout, if this file is in one."""


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
    """Return the error for a missing `module`, one of EXTRAS, that `what` needs.

    >>> print(str(missing("torch", "hocket.torch")).partition(" '")[0])
    hocket.torch needs torch, which is not installed
    hint: pip install
    """
    return MissingExtraError(
        f"{what} needs {module}, which is not installed\nhint: {install(EXTRAS[module])}",
        name=module,
    )


def install(*extras: str) -> str:
    """Return the command that installs these extras, from where Hocket itself was installed: its checkout or its wheel.

    No package index has Hocket, and a package that somebody else would publish there under its name is another one.
    """
    listed = ",".join(extras)
    if (CHECKOUT / "pyproject.toml").is_file():
        return f"pip install '{CHECKOUT}[{listed}]'"
    source = _installed_from()
    if source is None:
        return f"pip install 'WHEEL[{listed}]', with the file that Hocket was installed from"
    return f"pip install '{source}[{listed}]'"


def _installed_from() -> Path | None:
    """Return the file or directory that pip was given (PEP 610); None: it is not known, or is not there any more."""
    import importlib.metadata  # noqa: PLC0415  # takes longer than all else here

    try:
        text = importlib.metadata.distribution("hocket").read_text("direct_url.json")
        url = typed.of_json(text or "{}", dict[str, object]).get("url", "")
    except (importlib.metadata.PackageNotFoundError, msgspec.MsgspecError):
        return None
    parts = urllib.parse.urlsplit(str(url))
    path = Path(urllib.parse.unquote(parts.path))
    return path if parts.scheme == "file" and path.exists() else None
