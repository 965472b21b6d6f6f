"""Placement of buckets at the layers of a model: which buckets the forward of each layer needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from hocket.errors import UsageError
from hocket.torch import optimizers
from hocket.torch.observer import Observer


class Layer:
    """Buckets that a module needs, each with the name of a parameter in it, for messages."""

    def __init__(self) -> None:
        """Need nothing."""
        # Mode in which the module was observed; None: it did not run.
        self.training: bool | None = None
        self.used: dict[int, str] = {}
        self.below: dict[int, str] = {}

    def needed(self, module: torch.nn.Module) -> dict[int, str]:
        """Return the buckets that the module's forward needs now."""
        # In a mode that was not observed, the module may take another path, as TransformerEncoderLayer does in evaluation.
        return self.used if module.training == self.training else self.below


class Placement:
    """Placement in one model.

    Attributes:
        buckets: the parameters of each bucket.
        bucket_of: by a parameter's `id`, its bucket.
        layers: by module, the buckets that it needs.
        uses: by a parameter's `id`, the modules that were observed to use it; None: nothing was observed yet.
    """

    def __init__(self, model: torch.nn.Module, buckets: Sequence[Sequence[torch.nn.Parameter]]) -> None:
        """Begin without layers. UsageError: as `assign`."""
        self._model = model
        self.layers: dict[torch.nn.Module, Layer] = {}
        self.uses: dict[int, set[torch.nn.Module]] | None = None
        self.assign(buckets)

    def assign(self, buckets: Sequence[Sequence[torch.nn.Parameter]]) -> None:
        """Take these buckets instead of earlier ones. UsageError: a parameter is not the model's."""
        self._names = {id(each): name for name, each in self._model.named_parameters()}
        self.buckets = tuple(tuple(bucket) for bucket in buckets)
        self.bucket_of = {id(each): index for index, bucket in enumerate(self.buckets) for each in bucket}
        if not self.bucket_of.keys() <= self._names.keys():
            raise UsageError(
                "a bucket has a parameter that is not the model's\nhint: gate its own parameters"
            )

    def observed(self, observer: Observer) -> None:
        """Take an observed forward."""
        for module, layer in self.layers.items():
            layer.training = module.training if module in observer.ran else None
        self.uses = observer.uses
        self.place()

    def place(self) -> None:
        """Assign to each layer the buckets that its module was observed to use."""
        for module, layer in self.layers.items():
            layer.used = {}
            layer.below = self._with_names(module.parameters())
        for parameter in (each for bucket in self.buckets for each in bucket):
            users = (self.uses or {}).get(id(parameter)) or [self._model]
            for module in users:
                self.layers[module].used.update(self._with_names([parameter]))

    def name(self, parameter: torch.Tensor) -> str:
        """Return the name of a parameter of the model."""
        return self._names[id(parameter)]

    def label(self, bucket: int) -> str:
        """Return the name of the bucket's first parameter."""
        return next(map(self.name, self.buckets[bucket]), f"bucket {bucket}")

    def stranger(self, optimizer: torch.optim.Optimizer) -> str | None:
        """Return a text about a parameter that the optimizer lacks; None: it has all."""
        missing = optimizers.missing(optimizer, self.bucket_of)
        if missing is None:
            return None
        return f"`{self._names[missing]}` is not in the optimizer; another one may step it"

    def _with_names(self, parameters: Iterable[torch.Tensor]) -> dict[int, str]:
        keys = [id(each) for each in parameters if id(each) in self.bucket_of]
        return {self.bucket_of[key]: self._names[key] for key in reversed(keys)}
