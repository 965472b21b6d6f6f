"""The demo's models are what the demo says they are."""

import pytest
import torch

from hocket.tools.demo.models import CONTEXT_BYTES, DigitsNet, Transformer
from hocket.tools.demo.task import TASKS

pytestmark = pytest.mark.hosts


def _parameters(model: torch.nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def test_sizes_are_those_that_the_demo_names() -> None:
    """Broken: bytes and times of the comparison would be about another model."""
    assert round(_parameters(Transformer()) / 1e6, 1) == 3.3
    assert round(_parameters(DigitsNet()) / 1e6, 2) == 0.15


def test_the_transformer_sees_only_what_came_before() -> None:
    """Broken: bits per byte would be too good, since the answer is in the input."""
    model = Transformer(width=32, layers=2, heads=2)
    text = torch.randint(256, (1, CONTEXT_BYTES))
    changed = text.clone()
    changed[0, 70:] = 255 - changed[0, 70:]
    before, after = model(text), model(changed)
    torch.testing.assert_close(before[:, :70], after[:, :70])
    assert not torch.allclose(before[:, 70:], after[:, 70:])


def test_the_seed_alone_makes_the_model() -> None:
    """Broken: strategies would start from different parameters, and their losses would not compare."""
    for task in TASKS.values():
        torch.manual_seed(99)
        first = task.model(1)
        second, other = task.model(1), task.model(2)
        pairs = list(zip(first.parameters(), second.parameters(), strict=True))
        assert all(torch.equal(a, b) for a, b in pairs)
        assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_shares_of_the_score_add_up_to_the_whole() -> None:
    """Broken: the held-out metric would depend on the number of ranks."""
    task = TASKS["digits"]
    model = task.model(0)
    whole = task.score(model, 0, 1)
    parts = [task.score(model, rank, 3) for rank in range(3)]
    assert sum(part.count for part in parts) == whole.count > 300
    assert sum(part.total for part in parts) == whole.total
