"""Arguments of trainers that are wrong: said at the call that has them, in words of who gave them."""

import subprocess
import sys

import pytest

import hocket.torch as hk
from hocket.errors import UsageError

STRATEGY = """
import sys, warnings
warnings.simplefilter("ignore")
from hocket.errors import UsageError
from hocket.torch.trainers.{name} import HocketStrategy, StrategyRegistry
print(StrategyRegistry["hocket"]["strategy"] is HocketStrategy)
for option in sys.argv[1:]:
    try:
        HocketStrategy(**{{option: 1}})
    except UsageError as error:
        print(str(error).replace("\\n", " "))
"""
SAID = {
    "find_unused_parameters": "into DistributedDataParallel hint: not needed",
    "ddp_comm_hook": 'into DistributedDataParallel hint: HocketStrategy(promise="rounded")',
    "broadcast_buffers": 'hint: HocketStrategy(buffers="before_forward")',
    "parameter_server": "no such option hint: .*but for parameter_server: all ranks of Lightning train",
    "local": "local=1: steps alone are described by an object hint: hk.Local(every=30)",
}


@pytest.mark.parametrize("name", ["lightning", "pytorch_lightning"])
def test_a_strategy_has_no_options_of_ddp(name):
    """Broken: an option would be taken and have no effect; or `strategy="hocket"` be unknown."""
    argv = [sys.executable, "-c", STRATEGY.format(name=name), *SAID]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    registered, *said = ended.stdout.splitlines()
    assert registered == "True", ended.stderr
    for expected, found in zip(SAID.values(), said, strict=True):
        for part in expected.split(".*"):
            assert part in found


@pytest.mark.parametrize("call", [hk.trainer, hk.accelerate])
def test_only_trainers_are_equipped(call):
    """Broken: an AttributeError would come from somewhere in the trainer's own code."""
    with pytest.raises(UsageError, match=r"dict is no (Trainer|Accelerator)(.|\n)*hint: .*hk\.accelerate\("):
        call({})
