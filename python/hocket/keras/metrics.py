"""`Metrics`: a callback that makes what an epoch has logged the same on all ranks."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from hocket.keras.distribute import job


class Metrics(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """At the end of each epoch, the logs of all ranks become their means. Give it first among the callbacks, so that those after
    it (`EarlyStopping`, `ReduceLROnPlateau`) decide alike on all ranks.

    Raises, in `fit`: RendezvousError names the ranks whose epoch does not end in time.
    """

    def on_epoch_end(self, _epoch: int, logs: dict[str, Any] | None = None) -> None:
        """All ranks meet."""
        if not logs:
            return
        own = job()
        mine = {name: float(value) for name, value in logs.items()}
        every = own.store.gather("keras/epoch", own.rank, own.world, mine, own.settings.timeout_s)
        for name in mine:
            found = [each[name] for each in every if name in each]
            logs[name] = float(np.mean(found))
