"""Ranks of `torch.distributed` that a framework has started, and that are no ranks of Hocket's job."""

import torch

from hocket.torch.rendezvous import warn_if_apart


def test_ranks_that_train_apart_are_told(monkeypatch, caplog):
    """Under a trainer with ranks of its own, `hk.distribute` would average nothing, without a word."""
    warn_if_apart(1)
    assert not caplog.records
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    warn_if_apart(4)
    assert not caplog.records
    warn_if_apart(1)
    assert "this process is rank 3 of 4 for torch.distributed, but alone in Hocket's job" in caplog.text
    assert "hint: start ranks with `hocket run -n 4 SCRIPT`" in caplog.text
