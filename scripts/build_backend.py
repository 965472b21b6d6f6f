"""The build backend of pyproject.toml: maturin's, with the testbed's switch built before every wheel, and the native stub after it.

So `pip install` of a checkout or of the sdist brings all that a published wheel has.
"""

from pathlib import Path
from typing import Any

import build_switch
import maturin
import native_stub
from maturin import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def build_wheel(wheel_directory: str, *arguments: Any, **options: Any) -> str:
    """As PEP 517 defines it."""
    build_switch.build()
    # The stub is made from the library in a first wheel; nothing is compiled twice.
    native_stub.write(Path(wheel_directory, maturin.build_wheel(wheel_directory, *arguments, **options)))
    name: str = maturin.build_wheel(wheel_directory, *arguments, **options)
    return name


def build_editable(*arguments: Any, **options: Any) -> str:
    """As PEP 660 defines it."""
    build_switch.build()
    name: str = maturin.build_editable(*arguments, **options)
    native_stub.write()
    return name
