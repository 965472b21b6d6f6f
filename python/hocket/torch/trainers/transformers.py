"""`hk.distribute` under transformers' Trainer, whose Accelerator distributes its model.

The Trainer stays the object that it was, with a class made of its own, so that this holds for Trainers of other packages, too. It
makes an Accelerator anew for each trial of a search for hyperparameters: each is given Hocket's class.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from hocket.errors import UsageError
from hocket.torch.trainers import checkpoint
from hocket.torch.trainers.accelerate import check_replicates, equip
from hocket.torch.trainers.options import Asked, Options, apply_late

if TYPE_CHECKING:
    from transformers import Trainer as Base
else:
    Base = object

Given = TypeVar("Given")

NAME = "transformers' Trainer"
SEAMS = (
    "create_accelerator_and_postprocess",
    "_save_optimizer_and_scheduler",
    "_load_optimizer_and_scheduler",
)
"""Methods of a Trainer that are extended."""


def trainer(
    trainer: Given,
    **asked: Unpack[Asked],
) -> Given:
    """Let a Trainer of transformers, or of a package that builds on it, train by `hk.distribute`, without DistributedDataParallel.

        trainer = hk.trainer(Trainer(model, arguments, train_dataset=data), promise="rounded")
        trainer.train()

    Accumulation, clipping, mixed precision, evaluation, callbacks, checkpoints and `resume_from_checkpoint` stay as they are. Where
    gradients are late, they are applied before each evaluation and checkpoint, and at the end of each epoch.

    Args:
        trainer: a Trainer that has not trained yet. It is returned.
        asked: plan, policy, promise, search, local, buffers and settings, as in `hk.distribute`.

    Raises UsageError: it is no Trainer, it shards its model or puts it into DataParallel, or what `hk.accelerate` refuses.
    """
    given: Any = trainer
    _check(given)
    options = Options(NAME, asked)
    kind = type(given)
    given._hocket_options = options
    given.__class__ = type(kind.__name__, (_Trainer, kind), {"__module__": kind.__module__})
    given.add_callback(_callback(given))
    equip(given.accelerator, options)
    return trainer


class _Trainer(Base):  # type: ignore[misc]
    """What differs in a Trainer whose model is distributed by `hk.distribute`."""

    _hocket_options: Options

    def create_accelerator_and_postprocess(self) -> None:
        """Make the Accelerator, which distributes."""
        super().create_accelerator_and_postprocess()
        check_replicates(self.accelerator, NAME)
        equip(self.accelerator, self._hocket_options)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        models = self.accelerator._hocket.models
        with checkpoint.whole_optimizers(models):
            super()._save_optimizer_and_scheduler(output_dir)
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        checkpoint.save(models, Path(output_dir))

    def _load_optimizer_and_scheduler(self, resumed_from: str | None) -> None:
        super()._load_optimizer_and_scheduler(resumed_from)
        if resumed_from is not None:
            checkpoint.load(self.accelerator._hocket.models, Path(resumed_from))


def _callback(trainer: Any) -> Any:
    """Return the callback that applies late gradients before the Trainer evaluates or saves."""
    base: Any = sys.modules["transformers"].TrainerCallback

    class ApplyLate(base):  # type: ignore[misc]
        """Applies late gradients."""

        def on_step_end(self, _arguments: Any, _state: Any, control: Any, **_: Any) -> None:
            """Apply them if the Trainer is about to evaluate or to save."""
            if control.should_evaluate or control.should_save:
                self._apply()

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            """Apply them: the Trainer may evaluate or save, or has finished."""
            self._apply()

        def _apply(self) -> None:
            for each in trainer.accelerator._hocket.models:
                apply_late(each)

    return ApplyLate()


def _check(trainer: Any) -> None:
    library = sys.modules.get("transformers")
    if library is None or not isinstance(trainer, library.Trainer):
        raise UsageError(
            f"hk.trainer: {type(trainer).__name__} is no Trainer of transformers\n"
            "hint: trainer = hk.trainer(Trainer(…)); for Accelerate, accelerator = hk.accelerate(Accelerator())"
        )
    missing = [each for each in SEAMS if not hasattr(trainer, each)]
    if missing:
        raise UsageError(
            f"hk.trainer: this transformers ({library.__version__}) has no Trainer.{missing[0]}\nhint: 5.23 has it"
        )
    if isinstance(trainer, _Trainer):
        raise UsageError(
            "hk.trainer: this Trainer has been given to it before\nhint: call it once, with all arguments"
        )
    if trainer.args.n_gpu > 1:
        raise UsageError(
            f"{NAME} would put the model into DataParallel, on {trainer.args.n_gpu} devices of this process\n"
            "hint: start a rank for each device: torchrun --nproc-per-node=N"
        )
    if getattr(trainer, "is_distributed_loading_by_transformers", False):
        raise UsageError(
            "hk.trainer: the model was sharded as it was loaded, and hk.distribute gives each rank the whole\n"
            "hint: from_pretrained without a plan for tensor parallelism"
        )
    check_replicates(trainer.accelerator, NAME)
