"""`hk.distribute` under Accelerate: an Accelerator whose `prepare` distributes a model with its optimizer, in place of
DistributedDataParallel around the model.

The Accelerator stays the object that it was, with a class made of its own: transformers' Trainer makes one by itself. What it
prepares otherwise (autocast, devices, compilation, loaders) it prepares as before.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import torch

from hocket.errors import UsageError
from hocket.torch.in_training import distributed_of, join
from hocket.torch.trainers import checkpoint
from hocket.torch.trainers.options import Asked, Options, apply_late, clip_norm, steps

if TYPE_CHECKING:
    from accelerate import Accelerator as Base
else:
    Base = object

Given = TypeVar("Given")

NAME = "Accelerate"
REPLICATES = (
    "NO",
    "MULTI_CPU",
    "MULTI_GPU",
    "MULTI_NPU",
    "MULTI_MLU",
    "MULTI_SDAA",
    "MULTI_MUSA",
    "MULTI_XPU",
)
"""Types of distribution of Accelerate in which each rank has the whole model."""


def accelerate(
    accelerator: Given,
    **asked: Unpack[Asked],
) -> Given:
    """Let an Accelerator of Accelerate distribute what it prepares by `hk.distribute`, without DistributedDataParallel.

        accelerator = hk.accelerate(Accelerator(gradient_accumulation_steps=4), promise="rounded")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    The loop stays as it is: `accumulate`, `no_sync`, `backward`, `clip_grad_norm_`, `gather_for_metrics`, `save_state` and
    `load_state`. A model may be prepared before its optimizer or after it; until both are, it does not train.

    Args:
        accelerator: one that has prepared no model yet. It is returned.
        asked: plan, policy, promise, search, local, buffers and settings, as in `hk.distribute`.

    Raises UsageError: it is no Accelerator, it shards models (FSDP, DeepSpeed, Megatron-LM, tensor parallelism), it has a
    communication hook of DDP or has prepared a model; elastic jobs, parameter servers, helpers.
    """
    _check(accelerator)
    equip(accelerator, Options(NAME, asked))
    return accelerator


def equip(accelerator: Any, options: Options) -> None:
    """Give a checked Accelerator its class."""
    kind = type(accelerator)
    accelerator._hocket = Prepared(options)
    accelerator.__class__ = type(kind.__name__, (_Accelerator, kind), {"__module__": kind.__module__})


class Prepared:
    """Models and optimizers that one Accelerator has prepared, and which of them train together."""

    def __init__(self, options: Options) -> None:
        """Begin with nothing prepared."""
        self._options = options
        self._trained: list[torch.nn.Module] = []
        """Models that were prepared to be trained."""
        self._pairs: dict[int, tuple[torch.nn.Module, torch.optim.Optimizer]] = {}
        """`id` of a model → a distributed model, with the optimizer with which it was distributed."""
        self._lonely: dict[int, tuple[object, torch.utils.hooks.RemovableHandle]] = {}
        """`id` of a model or an optimizer → that, without the other, and the hook that refuses to train it."""

    @property
    def models(self) -> list[torch.nn.Module]:
        """Distributed models."""
        return [each for each in self._trained if id(each) in self._pairs]

    def add(self, model: torch.nn.Module) -> None:
        """Note a model that is to be trained, if it has anything to train."""
        if model not in self._trained and any(each.requires_grad for each in model.parameters()):
            self._trained.append(model)

    def distribute(self, optimizers: Iterable[torch.optim.Optimizer], *, alone: bool) -> None:
        """Distribute each model with its optimizer, if that is prepared and the pair is new. Other models and optimizers do not
        train until they have one another, unless the rank is `alone`."""
        optimizers = list(optimizers)
        for model in self._trained:
            own = next((each for each in optimizers if steps(each, model)), None)
            self._go_on(model)
            if own is None:
                self._await(model, None if alone else model.register_forward_pre_hook(_refuse_forward))
            elif id(model) not in self._pairs or self._pairs[id(model)][1] is not own:
                self._options.distribute(model, own)
                self._pairs[id(model)] = model, own
        for each in optimizers:
            self._go_on(each)
            if not any(steps(each, model) for model in self.models):
                self._await(each, None if alone else each.register_step_pre_hook(_refuse_step))

    def owner(self, parameters: Iterable[torch.Tensor]) -> torch.nn.Module | None:
        """Return the distributed model that has some of these parameters."""
        given = {id(each) for each in parameters}
        return next((each for each in self.models if not given.isdisjoint(map(id, each.parameters()))), None)

    def forget(self) -> None:
        """Forget what was prepared. What was distributed stays so until it is distributed again."""
        self._trained = []
        for each, _ in list(self._lonely.values()):
            self._go_on(each)

    def _await(self, lonely: object, hook: torch.utils.hooks.RemovableHandle | None) -> None:
        if hook is not None:
            self._lonely[id(lonely)] = lonely, hook

    def _go_on(self, paired: object) -> None:
        _, hook = self._lonely.pop(id(paired), (None, None))
        if hook is not None:
            hook.remove()


class _Accelerator(Base):  # type: ignore[misc]
    """What differs in an Accelerator whose models are distributed by `hk.distribute`."""

    _hocket: Prepared

    def prepare_model(
        self, model: Any, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> Any:
        """Prepare a model as Accelerate does, but for DistributedDataParallel; distribute it if its optimizer is there."""
        prepared = super().prepare_model(model, device_placement=device_placement, evaluation_mode=True)
        if not evaluation_mode:
            self._hocket.add(_plain(prepared))
            self._distribute()
        return prepared

    def prepare_optimizer(self, optimizer: Any, device_placement: bool | None = None) -> Any:
        """Prepare an optimizer as Accelerate does; distribute its model if that is there."""
        prepared = super().prepare_optimizer(optimizer, device_placement=device_placement)
        self._distribute()
        if prepared.scaler is not None:
            # It has noted the optimizer's `step` for its scaler, which may be another one now.
            prepared.__setstate__(prepared.__getstate__())
        return prepared

    def free_memory(self, *objects: Any) -> Any:
        """Forget what was prepared."""
        self._hocket.forget()
        return super().free_memory(*objects)

    @contextlib.contextmanager
    def join_uneven_inputs(
        self, joinables: Iterable[Any], even_batches: bool | None = None
    ) -> Iterator[None]:
        """Train ranks with unequal numbers of batches, by `hk.join`."""
        even = self.even_batches if even_batches is None else even_batches
        samplers = [
            each.batch_sampler for each in self._dataloaders if hasattr(each.batch_sampler, "even_batches")
        ]
        before = [each.even_batches for each in samplers]
        try:
            for each in samplers:
                each.even_batches = even
            with contextlib.nullcontext() if even else join(*map(_plain, joinables)):
                yield
        finally:
            for each, was in zip(samplers, before, strict=True):
                each.even_batches = was

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2) -> torch.Tensor:
        """Clip gradients by their norm, once they are final."""
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        model = self._hocket.owner(given)
        if model is None:
            found: torch.Tensor = super().clip_grad_norm_(given, max_norm, norm_type)
            return found
        self.unscale_gradients()
        return clip_norm(model, given, max_norm, norm_type)

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        """Clip gradients by value, once they are final."""
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        model = self._hocket.owner(given)
        if model is not None:
            distributed_of(model).session.settle()
        super().clip_grad_value_(given, clip_value)

    def save_state(self, output_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Save as Accelerate does, and what Hocket keeps beside; late gradients are applied before."""
        models = self._hocket.models
        self._apply_late()
        with checkpoint.whole_optimizers(models):
            directory = super().save_state(output_dir, *args, **kwargs)
        checkpoint.save(models, Path(directory))
        return directory

    def load_state(self, *args: Any, **kwargs: Any) -> None:
        """Load as Accelerate does, and what Hocket has kept beside."""
        self._apply_late()
        with contextlib.ExitStack() as undo:
            seen: list[str] = []
            undo.callback(
                self.register_load_state_pre_hook(lambda _, directory: seen.append(directory)).remove
            )
            super().load_state(*args, **kwargs)
        checkpoint.load(self._hocket.models, Path(seen[0]))

    def _apply_late(self) -> None:
        for each in self._hocket.models:
            apply_late(each)

    def _distribute(self) -> None:
        self._hocket.distribute(map(unwrapped, self._optimizers), alone=self.num_processes == 1)


def unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer that Accelerate has wrapped, perhaps several times."""
    while not hasattr(optimizer, "_optimizer_step_post_hooks"):
        optimizer = optimizer.optimizer
    return optimizer  # type: ignore[no-any-return]


def check_replicates(accelerator: Any, trainer: str) -> None:
    """Raise UsageError unless each rank of the Accelerator has the whole model, and nobody else has been told to reduce it."""
    kind = accelerator.distributed_type.value
    if kind not in REPLICATES:
        raise UsageError(
            f"{trainer} is set up for {kind}, which shards the model or reduces its gradients itself\n"
            "hint: leave its plugin and its variables (ACCELERATE_USE_…) out; beside FSDP2, hk.hsdp_hook (docs/fsdp2.md)"
        )
    if accelerator.parallelism_config is not None:
        raise UsageError(
            f"{trainer} has a ParallelismConfig, which divides a model among ranks; hk.distribute gives each the whole\n"
            "hint: leave it out"
        )
    hook = getattr(accelerator.ddp_handler, "comm_hook", "no")
    hook = getattr(hook, "value", hook)
    if hook != "no":
        raise UsageError(
            f"{trainer} has comm_hook={hook} for DistributedDataParallel, which is left out\n"
            'hint: promise="rounded" sends f16 on slow links; a policy such as PowerSGD() rounds as you choose'
        )
    if accelerator._models:
        raise UsageError(
            f"{trainer} has prepared {type(accelerator._models[0]).__name__} already, in its own way\n"
            "hint: hk.accelerate before the first accelerator.prepare"
        )


def _check(accelerator: Any) -> None:
    library = sys.modules.get("accelerate")
    if library is None or not isinstance(accelerator, library.Accelerator):
        raise UsageError(
            f"hk.accelerate: {type(accelerator).__name__} is no Accelerator\n"
            "hint: accelerator = hk.accelerate(Accelerator()); for transformers' Trainer, trainer = hk.trainer(Trainer(…))"
        )
    if isinstance(accelerator, _Accelerator):
        raise UsageError(
            "hk.accelerate: this Accelerator has been given to it before\nhint: call it once, with all arguments"
        )
    check_replicates(accelerator, NAME)


def _plain(model: Any) -> Any:
    """Return a model without what `torch.compile` puts around it."""
    return getattr(model, "_orig_mod", model)


def _refuse_forward(model: torch.nn.Module, _: object) -> None:
    if model.training and torch.is_grad_enabled():
        raise UsageError(
            f"{type(model).__name__} was prepared without an optimizer that steps it: each rank would train its own\n"
            "hint: model, optimizer = accelerator.prepare(model, optimizer); model.eval() and torch.no_grad() for inference"
        )


def _refuse_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    raise UsageError(
        f"{type(optimizer).__name__} was prepared, and no model that it steps: each rank would train its own\n"
        "hint: model, optimizer = accelerator.prepare(model, optimizer)"
    )
