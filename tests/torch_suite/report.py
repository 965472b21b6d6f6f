"""`make test-torch`: runs PyTorch's distributed tests for our backend under each name, and lists what none of them ran.

Exit code 1 when a test fails. Writes docs/torch-tests.md. Each run takes some minutes.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.support.suites import FAILED, KINDS, PASSED, Outcomes, outcomes_of

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "torch-tests.md"
DEVICE = "hostile"
CLASS = "TestHocket::"
ON_CPU, ON_DEVICE = [("hocket", ""), ("gloo", ""), ("mpi", "")], [("nccl", DEVICE), ("gloo", DEVICE)]
"""Names of backends whose tests run, and the device."""

Run = tuple[str, str]


def run(name: str, device: str, directory: Path, tests: Sequence[str] = ()) -> Outcomes:
    """Outcomes of these tests, or of all."""
    sys.stderr.write(f"PyTorch's distributed tests, those for `{name}`, {tensors(device)}\n")
    outcomes = outcomes_of(
        sys.executable,
        [f"distributed.py::{CLASS}{test}" for test in tests] or ["distributed.py"],
        results=directory / f"{name}{device}.xml",
        directory=HERE,
        environment={"SUITE_AS": name, "SUITE_DEVICE": device},
        # The longest trains hundreds of models.
        test_s=900,
        limit_s=3600,
    )
    return {test.removeprefix(CLASS): outcome for test, outcome in outcomes.items()}


def tensors(device: str) -> str:
    return f"on the device `{device}`" if device else "on the CPU"


def passed(runs: dict[Run, Outcomes]) -> set[str]:
    return {test for outcomes in runs.values() for test, (kind, _) in outcomes.items() if kind == PASSED}


def write(on_cpu: dict[Run, Outcomes], on_device: dict[Run, Outcomes]) -> None:
    """The document: numbers, failures, and every test that no run has passed, by reason."""
    runs = on_cpu | on_device
    tests = sorted(next(iter(on_cpu.values())))
    cpu, done = passed(on_cpu), passed(runs)
    failed = [
        (test, each)
        for each, outcomes in runs.items()
        for test, (kind, _) in outcomes.items()
        if kind == FAILED
    ]
    never = [test for test in tests if test not in done | {each for each, _ in failed}]
    lines = [
        "# PyTorch's distributed tests",
        "",
        f"`make test-torch` with PyTorch {torch.__version__}: its own `distributed_test`, four processes a test, for the backend",
        "`hocket`; and again with those tests that are for `gloo`, `mpi` or `nccl` by name, run by our backend.",
        "This page is made by that command.",
        "",
        f"What no run before has passed runs on the device `{DEVICE}`, [the tests' own](gpus.md#the-device-of-the-tests), of which",
        f"each process has one. The word `cuda` in the tests' source is replaced by `{DEVICE}` where it stands alone: a module,",
        "a method, a type of device. Whether NCCL is there, and in which version, is not asked; nothing else is changed.",
        "",
        "| with those for | tensors | passed | skipped | failed |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (name, device), outcomes in runs.items():
        count = Counter(kind for kind, _ in outcomes.values())
        numbers = " | ".join(str(count[kind]) for kind in KINDS)
        lines.append(f"| `{name}` | {tensors(device)} | {numbers} |")
    lines += [
        "",
        f"{len(done)} of {len(tests)} tests pass in at least one run: {len(cpu)} on the CPU, and {len(done) - len(cpu)} of the",
        f"{len(tests) - len(cpu)} others on the device. {len(never)} run in none.",
        "",
    ]
    if failed:
        lines += [
            "## Failed",
            "",
            *(
                f"- `{test}` as `{each[0]}`, {tensors(each[1])}: {runs[each][test][1]}"
                for test, each in failed
            ),
            "",
        ]
    lines += ["## Skipped in every run", "", "| test | reason |", "| --- | --- |"]
    for test in never:
        reasons = dict.fromkeys(outcomes[test][1] for outcomes in on_device.values())
        lines.append(f"| `{test}` | {'; '.join(reasons)} |")
    DOCUMENT.write_text("\n".join(lines) + "\n")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hocket-torch-tests-") as directory:
        on_cpu = {each: run(*each, Path(directory)) for each in ON_CPU}
        on_device: dict[Run, Outcomes] = {}
        for each in ON_DEVICE:
            others = sorted({*next(iter(on_cpu.values()))} - passed(on_cpu | on_device))
            on_device[each] = run(*each, Path(directory), others)
    write(on_cpu, on_device)
    runs = [*on_cpu.values(), *on_device.values()]
    return int(any(kind == FAILED for outcomes in runs for kind, _ in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
