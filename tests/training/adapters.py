"""The frameworks that the conformance suite runs on, behind one face: a network, its optimizer, what a script does with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

RATE, MOMENTUM = 0.05, 0.9


class Adapter(Protocol):
    """A network of `values` with SGD, made by a framework; `framework` is what Hocket gets of it."""

    framework: Any

    def __init__(self, values: dict[str, np.ndarray]) -> None: ...

    def backward(
        self,
        x: np.ndarray,
        target: np.ndarray,
        *,
        spare: bool,
        after_forward: Callable[[], None] | None = None,
    ) -> None:
        """Forward and backward: the mean square of `tape.Network`."""

    def step(self) -> None: ...

    def zero_grad(self, *, set_to_none: bool = True) -> None: ...

    def put(self, values: dict[str, np.ndarray]) -> None:
        """Set the parameters."""

    def values(self) -> dict[str, np.ndarray]:
        """Copies of the parameters."""

    def gradients(self) -> dict[str, np.ndarray | None]:
        """Copies of the gradients."""

    def forget_gradient(self, name: str) -> None:
        """As a script that sets `grad = None`: the next backward makes it elsewhere."""


class OfToy:
    def __init__(self, values: dict[str, np.ndarray]) -> None:
        from tests.training.tape import Momentum, Network
        from tests.training.toy import Toy

        self.network = Network(values)
        self.framework = Toy(self.network, Momentum(self.network.parameters.values(), RATE, MOMENTUM))

    def backward(
        self,
        x: np.ndarray,
        target: np.ndarray,
        *,
        spare: bool,
        after_forward: Callable[[], None] | None = None,
    ) -> None:
        from tests.training.tape import Tape

        tape = Tape()
        loss = self.network.loss(tape, x, target, spare=spare)
        if self.framework.gates is not None:
            # What this forward did not use must be applied before backward adds to it.
            self.framework.gates.open_all()
        if after_forward is not None:
            after_forward()
        self.framework.backward(tape, loss)

    def step(self) -> None:
        self.framework.step()

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        self.framework.zero_grad(set_to_none)

    def put(self, values: dict[str, np.ndarray]) -> None:
        for name, value in values.items():
            self.network.parameters[name].value[...] = value

    def values(self) -> dict[str, np.ndarray]:
        if self.framework.gates is not None:
            self.framework.gates.open_all()
        return {name: each.value.copy() for name, each in self.network.parameters.items()}

    def gradients(self) -> dict[str, np.ndarray | None]:
        return {
            name: None if each.grad is None else each.grad.copy()
            for name, each in self.network.parameters.items()
        }

    def forget_gradient(self, name: str) -> None:
        self.network.parameters[name].grad = None


class OfTorch:
    device = "cpu"

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        import torch

        from hocket.torch.framework import Torch

        class Network(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for name in dict.fromkeys(name.partition(".")[0] for name in values):
                    weight = torch.from_numpy(values[f"{name}.weight"].copy())
                    layer = torch.nn.Linear(*weight.shape, dtype=weight.dtype)
                    layer.weight = torch.nn.Parameter(weight.T.contiguous())
                    layer.bias = torch.nn.Parameter(torch.from_numpy(values[f"{name}.bias"].copy()))
                    self.add_module(name, layer)

            def forward(self, x: torch.Tensor, spare: bool) -> torch.Tensor:
                for at, (name, layer) in enumerate(self.named_children()):
                    if name != "spare" or spare:
                        x = layer(x.tanh() if at else x)
                return x

        self.network = Network().to(self.device)
        optimizer = torch.optim.SGD(self.network.parameters(), lr=RATE, momentum=MOMENTUM)
        self.framework = Torch(self.network, optimizer)

    def backward(
        self,
        x: np.ndarray,
        target: np.ndarray,
        *,
        spare: bool,
        after_forward: Callable[[], None] | None = None,
    ) -> None:
        import torch

        out = self.network(torch.from_numpy(x).to(self.device), spare)
        loss = (out - torch.from_numpy(target).to(self.device)).square().mean()
        if after_forward is not None:
            after_forward()
        loss.backward()

    def step(self) -> None:
        self.framework.optimizer.step()

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        self.framework.optimizer.zero_grad(set_to_none)

    def put(self, values: dict[str, np.ndarray]) -> None:
        import torch

        self.network.load_state_dict({name: torch.from_numpy(value.T) for name, value in values.items()})

    def values(self) -> dict[str, np.ndarray]:
        return {name: each.detach().cpu().numpy().T.copy() for name, each in self.network.named_parameters()}

    def gradients(self) -> dict[str, np.ndarray | None]:
        return {
            name: None if each.grad is None else each.grad.cpu().numpy().T.copy()
            for name, each in self.network.named_parameters()
        }

    def forget_gradient(self, name: str) -> None:
        self.network.get_parameter(name).grad = None


class OnHostile(OfTorch):
    """Gradients on the tests' own device, in pieces of a few elements. `forgets`: an order that is not kept."""

    device = "hostile"
    forgets = ""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        from hocket.training.memory import device
        from tests.torch import hostile

        hostile.loaded()
        device.PIECE_BYTES = 24
        super().__init__(values)
        if self.forgets:
            hostile.forget(self.framework.device, self.forgets)


class OnAccelerator(OfTorch):
    """Gradients on this machine's accelerator, in pieces of a few elements."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        import torch

        from hocket.training.memory import device

        device.PIECE_BYTES = 24
        self.device = torch.accelerator.current_accelerator().type
        super().__init__(values)


ADAPTERS: dict[str, type[Adapter]] = {"toy": OfToy, "torch": OfTorch}
DEVICES: dict[str, type[Adapter]] = {"hostile": OnHostile, "accelerator": OnAccelerator}
"""PyTorch with gradients on a device; what is in memory there, only its copies tell."""
for order in ("made", "received", "down"):
    DEVICES[f"hostile without {order}"] = type(f"OnHostileWithout{order}", (OnHostile,), {"forgets": order})
