"""The models of `python -m benches models` are, tensor by tensor, those whose figures stand beside them."""

import pytest
import torch

from benches.models.catalogue import MODELS
from benches.models.rank import NETWORKS

pytestmark = pytest.mark.tools


@pytest.mark.parametrize(
    ("name", "parameters"), [("lenet5", 431_080), ("resnet50", 25_549_486), ("vgg19", 143_667_240)]
)
def test_models_have_the_tensors_of_the_paper(name, parameters):
    """Sizes of messages would be compared with those of another model."""
    with torch.device("meta"):
        model = NETWORKS[name]()
        logits = model(torch.empty(2, *MODELS[name].shape))
    sizes = [each.numel() for each in model.parameters()]
    assert logits.shape == (2, MODELS[name].classes)
    assert sum(sizes) == parameters
    paper = MODELS[name].paper
    if paper is not None:
        assert len(sizes) == paper.tensors
        assert round(4 * sum(sizes) / 1e6, 2) == pytest.approx(paper.volume_mb, abs=0.015)
        # Theirs have up to 35 bytes of metadata.
        assert 0 <= paper.shortest_push_bytes - 4 * min(sizes) <= 35
        assert 0 <= paper.longest_push_bytes - 4 * max(sizes) < 3000
