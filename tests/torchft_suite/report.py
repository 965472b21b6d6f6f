"""`make test-torchft`: runs torchft's own tests with its Gloo and with Hocket in its place, in turns, file by file.

Tests that fail are run again, since some of torchft's own fail now and then. Exit code 1 when one passes with Gloo and never with
Hocket, and `OTHERWISE` does not say why. Writes docs/torchft-tests.md.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from collections import Counter
from importlib import metadata
from pathlib import Path

from tests.support.suites import FAILED, KINDS, PASSED, SKIPPED, Outcomes, outcomes_of

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "torchft-tests.md"
LEFT_OUT = {
    "transport_test.py": "has what other files test with, and no tests",
    "diloco_regression_test.py": "the numbers that it compares with are not in the package",
    "torchcomms_test.py": "imports torchcomms, which is not there",
    "fsdp_test.py": "needs GPUs",
    "collectives_test.py": "needs GPUs",
    "quantization_test.py": "needs GPUs",
}
OTHERWISE = {
    "checkpointing/pg_transport_test.py::PGTransportTest::test_pg_transport_gloo": (
        "With Hocket, a `wait` that expires ends no call. After one, the test sends what nobody receives, and waits for its own "
        "time-out of 10 s, in which all of it must end; Gloo has closed the connection by then."
    ),
}
"""Why a test that Gloo passes does not pass with Hocket: what users have otherwise by intent."""
AGAIN = 5
CONTENDERS = {"Gloo": "", "Hocket": str(HERE / "replaced")}
"""Folder that puts the contender in Gloo's place in each process, by name."""


def main() -> int:
    tests = Path(sysconfig.get_path("purelib")) / "torchft"
    found: dict[str, dict[str, Outcomes]] = {}
    with tempfile.TemporaryDirectory(prefix="hocket-torchft-tests-") as directory:
        for file in sorted(each.relative_to(tests) for each in tests.rglob("*_test.py")):
            if file.name not in LEFT_OUT:
                found[str(file)] = {name: run(tests, str(file), name, Path(directory)) for name in CONTENDERS}
        failed = {
            f"{file}::{test}": Counter[str]()
            for file, of in found.items()
            for test in of["Gloo"]
            if any(of[name][test][0] == FAILED for name in CONTENDERS)
        }
        for test, passed in failed.items():
            for _ in range(AGAIN):
                for name in CONTENDERS:
                    ((kind, _),) = run(tests, test, name, Path(directory)).values()
                    passed[name] += kind == PASSED
    for test, passed in failed.items():
        file, _, of_class = test.partition("::")
        for name in CONTENDERS:
            passed[name] += found[file][name][of_class][0] == PASSED
    write(found, failed)
    return int(
        any(
            passed["Gloo"] and not passed["Hocket"] and test not in OTHERWISE
            for test, passed in failed.items()
        )
    )


def run(tests: Path, which: str, name: str, directory: Path) -> Outcomes:
    """Outcomes of the tests of a file, or of one test, with this contender."""
    sys.stderr.write(f"torchft's {which}, with {name}\n")
    return outcomes_of(
        sys.executable,
        ["-c", "/dev/null", "--rootdir", str(tests), str(tests / which)],
        results=directory / "results.xml",
        directory=directory,
        environment={"PYTHONPATH": CONTENDERS[name]},
        test_s=120,
        limit_s=1800,
    )


def write(found: dict[str, dict[str, Outcomes]], failed: dict[str, Counter[str]]) -> None:
    """The document: numbers by file, how often what failed has passed, and what neither runs, by reason."""
    versions = f"torchft {metadata.version('torchft-nightly')} and PyTorch {metadata.version('torch')}"
    lines = [
        "# torchft's tests",
        "",
        f"`make test-torchft` with {versions}:",
        "torchft's own tests, as they are in its package, with its Gloo and with Hocket in Gloo's place in every process that",
        "they start. This page is made by that command.",
        "",
        "Where a test gives a process group to a Manager, it is `hocket.torch.reconfigurable_group()`. Elsewhere it is torchft's",
        "class around one, since tests ask for what that class has beside a process group. The default group that changes its",
        'members is `init_process_group("hocket", enable_reconfigure=True)`.',
        "",
        "| tests | " + " | ".join(f"{name}: {kind}" for name in CONTENDERS for kind in KINDS) + " |",
        "| --- |" + " --- |" * len(CONTENDERS) * len(KINDS),
    ]
    total = Counter[tuple[str, str]]()
    for file, of in found.items():
        count = Counter((name, kind) for name in CONTENDERS for kind, _ in of[name].values())
        total += count
        lines.append(row(f"`{file}`", count))
    lines.append(row("all", total))
    lines += ["", "## What has failed", ""]
    if failed:
        lines += [
            f"Each test that has failed once was run {AGAIN} more times with each.",
            "",
            "| test | Gloo: passed | Hocket: passed | what the failure said | why |",
            "| --- | --- | --- | --- | --- |",
        ]
    else:
        lines.append("Nothing.")
    for test, passed in failed.items():
        file, _, of_class = test.partition("::")
        said = next(
            found[file][name][of_class] for name in CONTENDERS if found[file][name][of_class][0] == FAILED
        )
        numbers = " | ".join(f"{passed[name]} of {AGAIN + 1}" for name in CONTENDERS)
        lines.append(f"| `{test}` | {numbers} | {cell(said[1])} | {OTHERWISE.get(test, '')} |")
    reasons = Counter(why for of in found.values() for kind, why in of["Gloo"].values() if kind == SKIPPED)
    lines += ["", "## What is skipped", "", "| reason | tests |", "| --- | --- |"]
    lines += [f"| {cell(why)} | {number} |" for why, number in reasons.most_common()]
    lines += [f"| `{file}` is left out: {why} | |" for file, why in LEFT_OUT.items()]
    DOCUMENT.write_text("\n".join(lines) + "\n")


def row(name: str, count: Counter[tuple[str, str]]) -> str:
    numbers = " | ".join(str(count[name_of, kind]) for name_of in CONTENDERS for kind in KINDS)
    return f"| {name} | {numbers} |"


def cell(text: str) -> str:
    """A text as one cell of a table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
