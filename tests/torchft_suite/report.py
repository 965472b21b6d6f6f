"""`make test-torchft`: runs torchft's own tests with its Gloo and with Hocket in its place, in turns, file by file.

Exit code 1 when a test fails that Gloo passes, and `OTHERWISE` does not say why. Writes docs/torchft-tests.md.
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
    "PGTransportTest::test_pg_transport_gloo": "With Hocket, a `wait` that expires ends no call. After one, the test sends "
    "what nobody receives, and waits for its own time-out of 10 s, in which all of it must end; Gloo has closed the connection "
    "by then.",
}
"""Why a test that Gloo passes does not pass with Hocket: what users have otherwise by intent."""
CONTENDERS = {"Gloo": "", "Hocket": str(HERE / "replaced")}
"""Folder that puts the contender in Gloo's place in each process, by name."""


def main() -> int:
    tests = Path(sysconfig.get_path("purelib")) / "torchft"
    found: dict[str, dict[str, Outcomes]] = {}
    with tempfile.TemporaryDirectory(prefix="hocket-torchft-tests-") as directory:
        for file in sorted(each.relative_to(tests) for each in tests.rglob("*_test.py")):
            if file.name not in LEFT_OUT:
                found[str(file)] = {
                    name: run(tests, file, name, folder, Path(directory))
                    for name, folder in CONTENDERS.items()
                }
    worse = behind(found)
    write(found, worse)
    return int(any(test not in OTHERWISE for _, test, _ in worse))


def run(tests: Path, file: Path, name: str, folder: str, directory: Path) -> Outcomes:
    """Outcomes of a file's tests."""
    sys.stderr.write(f"torchft's {file}, with {name}\n")
    return outcomes_of(
        sys.executable,
        ["-c", "/dev/null", "--rootdir", str(tests), str(tests / file)],
        results=directory / f"{file.stem}-{name}.xml",
        directory=directory,
        environment={"PYTHONPATH": folder},
        test_s=120,
        limit_s=1800,
    )


def behind(found: dict[str, dict[str, Outcomes]]) -> list[tuple[str, str, str]]:
    """File, test and reason of what Gloo passes and Hocket does not."""
    return [
        (file, test, of["Hocket"][test][1])
        for file, of in found.items()
        for test, (kind, _) in of["Gloo"].items()
        if kind == PASSED and of["Hocket"][test][0] != PASSED
    ]


def write(found: dict[str, dict[str, Outcomes]], worse: list[tuple[str, str, str]]) -> None:
    """The document: numbers by file, what Gloo passes alone, and what neither runs, by reason."""
    versions = f"torchft {metadata.version('torchft-nightly')} and PyTorch {metadata.version('torch')}"
    lines = [
        "# torchft's tests",
        "",
        f"`make test-torchft` with {versions}: torchft's own tests, as they",
        "are in its package, with its Gloo and with Hocket in Gloo's place in every process that they start. This page is made by",
        "that command.",
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
    lines += ["", "## What Gloo passes and Hocket does not", ""]
    if worse:
        lines += ["| test | what Hocket ends with | why |", "| --- | --- | --- |"]
        lines += [
            f"| `{test}` in `{file}` | {cell(why)} | {OTHERWISE.get(test, '')} |" for file, test, why in worse
        ]
    else:
        lines.append("Nothing.")
    both = [
        (file, test, of["Gloo"][test][1])
        for file, of in found.items()
        for test in of["Gloo"]
        if all(of[name][test][0] == FAILED for name in CONTENDERS)
    ]
    if both:
        lines += ["", "## What both fail", "", "| test | what Gloo ends with |", "| --- | --- |"]
        lines += [f"| `{test}` in `{file}` | {cell(why)} |" for file, test, why in both]
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
