"""What a trainer has wrapped, given to `distribute`: two would reduce one gradient."""

import json
from pathlib import Path

from tests.support import warm
from tests.support.commands import alone

SCRIPT = Path(__file__).parent / "wrapped_scripts.py"


def test_wrapped_models_are_told_what_to_do():
    """Broken: transformers' Trainer with `distribute` inside dies with a wrong hint, or averages what is half averaged."""
    ran = alone(warm.command(SCRIPT))
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    for name in ("wrapper", "inside", "holder", "later"):
        assert "the model is in DistributedDataParallel" in said[name], (name, said[name])
        assert "hk.accelerate(" in said[name]
    assert "the optimizer is Accelerated, a wrapper of another one" in said["optimizer"]
    assert "the backward is compiled (torch._dynamo.compiled_autograd)" in said["compiled"]
    assert said["free"] == "nothing"
