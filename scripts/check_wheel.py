"""Checks what is published in bare virtual environments, which are made for it and removed: does it install, and train?

    python scripts/check_wheel.py dist/hocket-*manylinux*x86_64.whl
    python scripts/check_wheel.py dist/hocket-*.tar.gz --python python3.12 --torch newest

For each Python: without PyTorch, the command line works and `hocket doctor` says what is missing. With each PyTorch, the two lines
of README.md train on two processes and end where one process ends with all of the data. By default, every supported Python that is
found, with the oldest PyTorch that is claimed for it, one between, and the newest. PyTorch is several GB; one is installed at a
time.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Protocol

from commands import ROOT, ran

OLDEST = {"3.11": "2.4.0", "3.12": "2.4.0", "3.13": "2.6.0"}
"""The oldest PyTorch by supported Python, as pyproject.toml claims."""
BETWEEN = "2.9.0"
"""A PyTorch in the middle, which many have."""
RANKS = 2

# A rank has its part of the data; alone, a process has all of it.
SCRIPT = """
import sys
import torch

torch.manual_seed(0)
inputs, targets = torch.randn(64, 8), torch.randn(64, 3)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
rank, world, plain = 0, 1, model
if sys.argv[1] == "ranks":
{lines}
    rank, world = hk.rank(model), hk.world(model)
    assert world == {ranks}, world
mine = slice(rank, None, world)
for _ in range(20):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine]).backward()
    optimizer.step()
torch.save(plain.state_dict(), f"{{sys.argv[2]}}/{{sys.argv[1]}}{{rank}}.pt")
"""
# It is to fail, and what it then says is compared.
IMPORT = "try:\n import hocket.torch\nexcept Exception as error: print(error)"
COMPARE = """
import sys
import torch

names = ("alone0", *(f"ranks{{at}}" for at in range({ranks})))
one, *ranks = (torch.load(f"{{sys.argv[1]}}/{{name}}.pt", weights_only=True) for name in names)
for rank in ranks:
    for name, value in one.items():
        assert torch.equal(rank[name], ranks[0][name]), name
        torch.testing.assert_close(rank[name], value, rtol=1e-5, atol=1e-6)
print("torch", torch.__version__, "trains: replicas are equal, and as one process")
"""


class Environment:
    """A bare virtual environment of one Python."""

    def __init__(self, python: str, folder: Path) -> None:
        """`python`: a command; `folder`: where the environment and its files go."""
        self.folder, self.bin = folder, folder / "venv/bin"
        ran(python, "-m", "venv", folder / "venv")

    def call(self, program: str, *words: str) -> str:
        """Return what a program of the environment prints; SystemExit when it fails."""
        return ran(self.bin / program, *words, cwd=self.folder)

    def install(self, *wanted: str) -> None:
        """By pip, which keeps no copy of its downloads, and does not compile modules that are never imported."""
        self.call("python", "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile", *wanted)


def found() -> list[str]:
    """Commands of the supported Pythons, in the PATH or among pyenv's; says which are not here."""
    pythons = []
    for version in OLDEST:
        kept = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
        for command in (f"python{version}", *map(str, kept)):
            shown = subprocess.run(["env", command, "--version"], capture_output=True, text=True, check=False)
            if shown.returncode == 0:
                pythons.append(command)
                break
        else:
            print(f"no Python {version} here: not checked", flush=True)
    return pythons


def without_torch(environment: Environment, package: Path) -> None:
    """Check what works without PyTorch, and what is said: to install it from this file, as no index has Hocket."""
    environment.call("hocket", "verify", "two_level")
    told = environment.call("python", "-c", IMPORT)
    found = json.loads(environment.call("hocket", "doctor", "--json"))["findings"]
    by_name = {each["name"]: each for each in found}
    torch, switch = by_name["torch"], by_name["switch"]
    asked = f"{package}[torch]"
    if torch["state"] != "missing" or asked not in torch["hint"] or asked not in told:
        sys.exit(f"error: without PyTorch, nothing says what to install: {torch}, {told}")
    if switch["state"] != "works":
        sys.exit(f"error: the testbed's switch is not in it: {switch}")


class Caller(Protocol):
    """Environment whose programs can be run."""

    folder: Path

    def call(self, program: str, *words: str) -> str:
        """Return what a program of the environment prints; SystemExit when it fails."""


def trains(environment: Caller) -> None:
    """The two lines of the README, on ranks that are processes."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = "\n".join(f"    {line}" for line in blocks[0].splitlines())
    script, compare = environment.folder / "train.py", environment.folder / "compare.py"
    script.write_text(SCRIPT.format(lines=lines, ranks=RANKS))
    compare.write_text(COMPARE.format(ranks=RANKS))
    here = str(environment.folder)
    environment.call("python", str(script), "alone", here)
    environment.call("hocket", "run", "-n", str(RANKS), str(script), "ranks", here)
    print(environment.call("python", str(compare), here), end="", flush=True)


def check(package: Path, python: str, torches: list[str]) -> None:
    """One Python, each PyTorch after the other."""
    with tempfile.TemporaryDirectory(prefix="hocket-check-") as folder:
        environment = Environment(python, Path(folder))
        environment.install(str(package))
        version = environment.call("python", "--version").split()[1]
        print(
            f"Python {version}: {environment.call('hocket', '--version').strip()} from {package.name}",
            flush=True,
        )
        without_torch(environment, package)
        for torch in torches:
            began_s = time.monotonic()
            number = OLDEST[version.rpartition(".")[0]] if torch == "oldest" else torch
            # Named, as pip leaves another one that will do where it is.
            pinned = "torch" if torch == "newest" else f"torch=={number}"
            environment.install("--upgrade", f"{package}[torch]", pinned)
            print(
                f"Python {version}: torch {number} installed in {time.monotonic() - began_s:.0f} s",
                flush=True,
            )
            trains(environment)


def main() -> None:
    """Every Python with every PyTorch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path)
    parser.add_argument("--python", nargs="+", help="Commands.  [default: every supported one that is found]")
    parser.add_argument(
        "--torch", nargs="*", default=["oldest", BETWEEN, "newest"], help="Versions, `oldest` or `newest`."
    )
    chosen = parser.parse_args()
    for python in chosen.python or found():
        check(chosen.package.absolute(), python, chosen.torch)


if __name__ == "__main__":
    main()
