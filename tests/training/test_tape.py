"""The toy framework of these tests against differences: what it gets wrong, the conformance suite could not tell."""

import numpy as np

from tests.training import network
from tests.training.tape import Network, Tape


def test_gradients_are_those_of_small_differences():
    """Two frameworks with one mistake would agree."""
    made = Network(network.values(seed=3))

    def loss() -> float:
        tape = Tape()
        return float(made.loss(tape, *network.batch(0, 0), spare=True).value)

    tape = Tape()
    tape.backward(made.loss(tape, *network.batch(0, 0), spare=True))
    draw = np.random.default_rng(0)
    for name, own in made.parameters.items():
        for at in draw.choice(own.value.size, 4, replace=False):
            place = np.unravel_index(at, own.value.shape)
            kept, step = own.value[place], 1e-6
            own.value[place] = kept + step
            above = loss()
            own.value[place] = kept - step
            below = loss()
            own.value[place] = kept
            assert np.isclose((above - below) / (2 * step), own.grad[place], rtol=1e-5, atol=1e-9), name
