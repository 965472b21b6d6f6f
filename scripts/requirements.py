"""Prints the requirements of pyproject.toml, with those of the extras that are named: what set-up installs."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
wanted = list(project["dependencies"])
for extra in sys.argv[1:]:
    wanted += project["optional-dependencies"][extra]
sys.stdout.write("\n".join(dict.fromkeys(wanted)) + "\n")
