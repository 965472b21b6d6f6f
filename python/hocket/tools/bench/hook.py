"""Cost of the readiness hook per gradient: backward passes with and without it, in turns.

One process with a world of one suffices: the hook's own path (look-up, identity, count) is the same in any world, and nothing else
of Hocket runs during backward. The last gradient of the bucket also launches it, as in a job.
"""

from __future__ import annotations

import secrets
import statistics

import torch
from msgspec import Struct

from hocket import _native
from hocket.artefacts.plan import AllReduce
from hocket.planning.compile import all_reduce_program
from hocket.tools.bench.alternate import alternate

GRADIENTS = 2000
TIMEOUT_S = 10.0


class HookCost(Struct, frozen=True, kw_only=True):
    """Seconds per gradient: of backward without a hook, added by an empty Python hook, added by ours."""

    gradients: int
    backward_s: float
    empty_python_hook_s: float
    readiness_hook_s: float


def measure(*, rounds: int = 30) -> HookCost:
    """Return medians over `rounds` backward passes of a model of 2,000 one-element parameters."""
    torch.set_num_threads(1)
    engine = _native.Engine(
        rank=0, world=1, job="bench-hook", secret=secrets.token_bytes(32), host="here", bind=["127.0.0.1"]
    )
    engine.connect([(engine.addresses, "here")], TIMEOUT_S)
    memory = engine.allocate(GRADIENTS * 4)
    bucket = torch.frombuffer(memory, dtype=torch.float32)
    program = all_reduce_program(
        world=1,
        elements=GRADIENTS,
        dtype="f32",
        op="sum",
        scale=1.0,
        route=AllReduce(algorithm="direct"),
    )
    number = engine.load(program, {0: (memory, 0)}, priority=0, label="hook")

    def adopt(_bucket: int, index: int, parameter: torch.Tensor) -> None:
        raise AssertionError(f"gradient {index} of {parameter.shape} left its bucket")

    def ignore(*_: object) -> None:
        pass

    readiness = _native.Readiness(engine, [(number, GRADIENTS, 0)], ignore, adopt, ignore, ignore)
    plain, empty, hooked = (_parameters() for _ in range(3))
    for parameter in empty:
        parameter.register_post_accumulate_grad_hook(lambda _parameter: None)
    for index, parameter in enumerate(hooked):
        view = bucket[index]
        parameter.grad = view
        parameter.register_post_accumulate_grad_hook(readiness.hook([(0, index)], view))

    def backward(parameters: list[torch.Tensor]) -> None:
        torch.stack(parameters).sum().backward()

    def ours() -> None:
        backward(hooked)
        readiness.finish()
        readiness.wait(0, TIMEOUT_S)
        readiness.applied(0)

    times_s = alternate(
        {"plain": lambda: backward(plain), "empty": lambda: backward(empty), "ours": ours}, rounds=rounds
    )
    engine.close()
    per_gradient = {name: statistics.median(series) / GRADIENTS for name, series in times_s.items()}
    return HookCost(
        gradients=GRADIENTS,
        backward_s=per_gradient["plain"],
        empty_python_hook_s=per_gradient["empty"] - per_gradient["plain"],
        readiness_hook_s=per_gradient["ours"] - per_gradient["plain"],
    )


def _parameters() -> list[torch.Tensor]:
    """Return one-element parameters whose gradients exist already, as they do from the second step on."""
    parameters = [torch.zeros((), requires_grad=True) for _ in range(GRADIENTS)]
    for parameter in parameters:
        parameter.grad = torch.zeros(())
    return parameters
