"""Prints the requirements of pyproject.toml, with those of the dependency groups that are named: what set-up installs.

A PyTorch that is there and recent enough stays; else the one that this version is tested with is asked for.
"""

import importlib.metadata
import sys
import tomllib
from pathlib import Path

TORCH_MIN = (2, 4)
TORCH_TESTED = "torch==2.15.0"


def has_torch() -> bool:
    """Whether this Python sees a PyTorch of at least TORCH_MIN."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2]) >= TORCH_MIN


def of_group(name: str) -> list[str]:
    """Requirements of a dependency group, with those of the groups that it includes."""
    found: list[str] = []
    for each in pyproject["dependency-groups"][name]:
        found += [each] if isinstance(each, str) else of_group(each["include-group"])
    return found


pyproject = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
wanted = list(pyproject["project"]["dependencies"])
for group in sys.argv[1:]:
    wanted += of_group(group)
others = [each for each in wanted if not each.startswith("torch")]
if len(others) < len(wanted) and not has_torch():
    others.append(TORCH_TESTED)
sys.stdout.write("\n".join(dict.fromkeys(others)) + "\n")
