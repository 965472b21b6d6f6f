"""Calls of `distribute` that are mistaken: each is refused by name, and in a notebook the next cell works."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support import ranks
from tests.support.commands import alone


def test_one_process_says_what_is_wrong_and_trains_when_it_is_mended() -> None:
    """Broken: a cell after a mistake would end with a closed connection, and the mistake with a missing attribute."""
    ran = alone(
        [sys.executable, "-m", "tests.torch.argument_scripts"],
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [
        "UsageError: the model is of type int, not torch.nn.modules.module.Module",
        "UsageError: the optimizer is of type str, not torch.optim.optimizer.Optimizer",
        "UsageError: the optimizer steps no parameter of the model: it has another model's, or those before a replacement",
        "UsageError: the plan is of type str, not a Plan",
        "UsageError: the policy is of type str, not a Policy",
        "UsageError: promise=3: a Promise, or words such as 'exact', 'rounded', 'merged', 'delayed', 'local', "
        "'uncorrected', 'lossy'",
        "UsageError: a search of `soon`",
        "trained",
    ]


def test_ranks_that_have_left_their_job_say_why(tmp_path: Path) -> None:
    """Broken: only a closed connection would be named."""
    ended = ranks.run("tests.torch.argument_scripts:once_more", 2, tmp_path)
    assert ended.outcome.code == 0, ended.output
    for rank, (first, then) in enumerate(ended.returned):
        # Whoever comes second may hear of the first one's mistake before it makes its own.
        assert "a search of `soon`" in first
        assert then == f"UsageError: rank {rank} has left its job: {first}"


def test_arguments_that_differ_are_told_on_every_rank(tmp_path: Path) -> None:
    """Broken: each rank would wait out its time for what the other never does, and blame it."""
    ended = ranks.run("tests.torch.argument_scripts:apart", 2, tmp_path)
    assert ended.returned[0] is not None, ended.output
    assert ended.returned[0] == ended.returned[1]
    policy, promise, trained = ended.returned[0]
    assert policy.startswith("RendezvousError: policy is `TopK` on rank 0 on "), policy
    assert "and not set on rank 1 on " in policy
    assert "buffers is not set on rank 0 on " in promise
    assert "promise is `exact` on rank 0 on " in promise
    assert trained == "trained"
