"""`Metrics`: a callback that makes the logs of an epoch the same on all ranks."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from hocket.keras.distribute import job


class Metrics(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Callback that replaces the logs of all ranks with their means at the end of each epoch. Give it first among the callbacks, so
    that later ones (`EarlyStopping`, `ReduceLROnPlateau`) decide alike on all ranks.

    Raises, in `fit`: RendezvousError names the ranks whose epoch does not end in time.
    """

    def on_epoch_end(self, _epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Exchange the logs with all ranks, and replace them with the means."""
        if not logs:
            return
        own = job()
        mine = {name: float(value) for name, value in logs.items()}
        every = own.store.gather("keras/epoch", own.rank, own.world, mine, own.settings.timeout_s)
        for name in mine:
            found = [each[name] for each in every if name in each]
            logs[name] = float(np.mean(found))
