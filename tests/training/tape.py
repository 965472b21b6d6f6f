"""A small framework to train with: NumPy arrays on a tape, run backwards for gradients. `toy.py` makes it one of Hocket's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np


class Parameter:
    """A trained array. `grad` is None until a backward has used it; hooks are called with it once it is complete."""

    def __init__(self, name: str, value: np.ndarray) -> None:
        self.name, self.value = name, value
        self.grad: np.ndarray | None = None
        self.hook: Callable[[Parameter], None] | None = None

    def accumulate(self, gradient: np.ndarray) -> None:
        if self.grad is None:
            self.grad = gradient.copy()
        else:
            self.grad += gradient


class Node:
    """A value on a tape, and what backward has found of its gradient so far."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value
        self.gradient = np.zeros_like(value)


class Tape:
    def __init__(self) -> None:
        self._back: list[Callable[[], None]] = []
        self._uses: Counter[str] = Counter()

    def use(self, parameter: Parameter) -> Node:
        """A parameter where forward uses it; its gradient is complete when the first use is."""
        node = Node(parameter.value)
        self._uses[parameter.name] += 1

        def back() -> None:
            parameter.accumulate(node.gradient)
            self._uses[parameter.name] -= 1
            if self._uses[parameter.name] == 0 and parameter.hook is not None:
                parameter.hook(parameter)

        self._back.append(back)
        return node

    def affine(self, x: Node, weight: Node, bias: Node) -> Node:
        out = Node(x.value @ weight.value + bias.value)

        def back() -> None:
            x.gradient += out.gradient @ weight.value.T
            weight.gradient += x.value.T @ out.gradient
            bias.gradient += out.gradient.sum(0)

        self._back.append(back)
        return out

    def tanh(self, x: Node) -> Node:
        out = Node(np.tanh(x.value))

        def back() -> None:
            x.gradient += out.gradient * (1 - out.value**2)

        self._back.append(back)
        return out

    def mean_square(self, x: Node, target: np.ndarray) -> Node:
        difference = x.value - target
        out = Node(np.array(np.mean(difference**2), x.value.dtype))

        def back() -> None:
            x.gradient += out.gradient * 2 * difference / difference.size

        self._back.append(back)
        return out

    def backward(self, loss: Node) -> None:
        """Gradients of all parameters that `loss` depends on, in the reverse of their use."""
        loss.gradient += 1
        for back in reversed(self._back):
            back()


class Network:
    """Affine layers with tanh between them; `spare` is one more at the end that a forward may use or not."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        """`values`: by name, `0.weight`, `0.bias`, … and `spare.weight`, `spare.bias`."""
        self.parameters = {name: Parameter(name, value.copy()) for name, value in values.items()}
        self.layers = [
            name.removesuffix(".weight")
            for name in values
            if name.endswith(".weight") and not name.startswith("spare")
        ]
        self.before_use: Callable[[Iterable[str]], None] = lambda _names: None
        """Called with the names of the parameters that forward is about to use."""

    def loss(self, tape: Tape, x: np.ndarray, target: np.ndarray, *, spare: bool) -> Node:
        out = Node(x)
        for at, layer in enumerate(self.layers):
            out = self._layer(tape, tape.tanh(out) if at else out, layer)
        if spare:
            out = self._layer(tape, tape.tanh(out), "spare")
        return tape.mean_square(out, target)

    def _layer(self, tape: Tape, x: Node, layer: str) -> Node:
        names = f"{layer}.weight", f"{layer}.bias"
        self.before_use(names)
        weight, bias = (tape.use(self.parameters[name]) for name in names)
        return tape.affine(x, weight, bias)


class Momentum:
    """SGD: m = momentum · m + gradient, value -= rate · m; a parameter without a gradient stays."""

    def __init__(self, parameters: Iterable[Parameter], rate: float, momentum: float) -> None:
        self.parameters = {each.name: each for each in parameters}
        self.rate, self.momentum = rate, momentum
        self.moments: dict[str, np.ndarray] = {}
        self.factors: dict[str, float] = {}
        """Of the next step, by parameter."""

    def step(self, names: Iterable[str] | None = None) -> None:
        for name in self.parameters if names is None else names:
            own = self.parameters[name]
            if own.grad is None:
                continue
            moment = self.moments.setdefault(name, np.zeros_like(own.value))
            moment *= self.momentum
            moment += own.grad
            own.value -= self.rate * self.factors.pop(name, 1.0) * moment

    def zero_grad(self) -> None:
        for each in self.parameters.values():
            each.grad = None
