"""`hk.distribute` as a strategy of Lightning: what `HocketStrategy` has beyond Lightning's DDPStrategy.

That gives it ranks, launchers, samplers and collectives. This file loads no Lightning: its strategy is made for either package.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Unpack

import torch
import torch.distributed as dist

from hocket.errors import UsageError
from hocket.torch.checkpoint import load_state_dict, optimizer_state, state_dict
from hocket.torch.in_training import distributed_of
from hocket.torch.trainers.options import Asked, Options, apply_late, clip_norm

if TYPE_CHECKING:
    from lightning.pytorch.strategies import DDPStrategy as Base
else:
    Base = object

NAME = "Lightning"
KEY = "hocket"
"""Name of Hocket's own state in a checkpoint: a list, by rank."""
OF_DDP = {
    "find_unused_parameters": "not needed: ranks agree in each step which gradients exist",
    "static_graph": "not needed",
    "gradient_as_bucket_view": "always so",
    "bucket_cap_mb": "buckets are a plan's, HocketStrategy(plan=…)",
    "broadcast_buffers": 'HocketStrategy(buffers="before_forward"), or "none"',
    "ddp_comm_hook": 'HocketStrategy(promise="rounded"), or a policy',
    "model_averaging_period": "HocketStrategy(local=hk.Local(every=…))",
}
"""What replaces options of DDPStrategy."""


def _refused(option: str) -> UsageError:
    known = OF_DDP.get("ddp_comm_hook" if option.startswith("ddp_comm") else option)
    if known is None:
        return UsageError(
            f"HocketStrategy({option}=…): it has no such option\n"
            "hint: it has those of hk.distribute, but for parameter_server: all ranks of Lightning train"
        )
    return UsageError(
        f"HocketStrategy({option}=…): it puts no model into DistributedDataParallel\nhint: {known}"
    )


class Distributed(Base):  # type: ignore[misc]
    """Strategy that trains by `hk.distribute`; see `hocket.torch.trainers.lightning`."""

    def __init__(
        self,
        accelerator: Any = None,
        parallel_devices: list[torch.device] | None = None,
        cluster_environment: Any = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
        *,
        process_group_backend: str | None = None,
        timeout: timedelta | None = None,
        start_method: Literal["popen", "spawn", "fork", "forkserver"] = "popen",
        **asked: Unpack[Asked],
    ) -> None:
        """Take arguments of `hk.distribute`, and those of DDPStrategy that are not DistributedDataParallel's.

        Args:
            accelerator: Lightning's, like the four after it; the Trainer gives them.
            parallel_devices: devices of this host.
            cluster_environment: numbers of ranks.
            checkpoint_io: how files are written.
            precision_plugin: mixed precision.
            process_group_backend: of Lightning's own collectives; default: `hocket` on the CPU, else Lightning's choice.
            timeout: of these; default: Lightning's.
            start_method: how Lightning starts ranks, where no launcher has.
            asked: plan, policy, promise, search, local, buffers and settings, as in `hk.distribute`.

        Raises UsageError: other options, such as DistributedDataParallel's; elastic jobs, parameter servers, helpers.
        """
        for name in asked.keys() - Asked.__annotations__.keys():
            raise _refused(name)
        self._options = Options(NAME, asked)
        super().__init__(
            accelerator=accelerator,
            parallel_devices=parallel_devices,
            cluster_environment=cluster_environment,
            checkpoint_io=checkpoint_io,
            precision_plugin=precision_plugin,
            process_group_backend=process_group_backend,
            start_method=start_method,
            **({} if timeout is None else {"timeout": timeout}),
        )
        self._distributed: torch.nn.Module | None = None
        """Model that was distributed last."""

    def _get_process_group_backend(self) -> str:
        if self._process_group_backend is None and self.root_device.type == "cpu":
            return "hocket"
        found: str = super()._get_process_group_backend()
        return found

    def configure_ddp(self) -> None:
        """Leave the model as it is."""

    def setup(self, trainer: Any) -> None:
        """Set up as Lightning does; then let its wrappers of optimizers zero gradients as the optimizers do."""
        super().setup(trainer)
        for each in self._lightning_optimizers:
            each.zero_grad = each.optimizer.zero_grad

    def setup_optimizers(self, trainer: Any) -> None:
        """Make the optimizers, and distribute the model with the first of them."""
        super().setup_optimizers(trainer)
        if not self.optimizers:
            raise UsageError(
                "Lightning: configure_optimizers returned none, so there is nothing to distribute\n"
                "hint: return an optimizer, also where training_step optimizes by hand"
            )
        model = self.lightning_module
        self._options.distribute(model, self.optimizers[0])
        self._distributed = model
        precision: Any = self.precision_plugin
        # Instances, as the user may have given any.
        precision.clip_grad_by_norm = self._clip_by_norm
        precision.clip_grad_by_value = self._clip_by_value

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Call `training_step` as the model's forward, with its hooks, as DistributedDataParallel would."""
        model = self.lightning_module
        with self.precision_plugin.train_step_context():
            return self._forward_redirection(model, model, "training_step", *args, **kwargs)

    def pre_backward(self, closure_loss: torch.Tensor) -> None:  # noqa: ARG002  # Lightning's
        """Decide whether this backward communicates: with optimization by hand, several follow one call of `training_step`."""
        if self._trains is not None and not self.lightning_module.automatic_optimization:
            distributed_of(self._trains).session.forward_begins(syncs=True)

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Accumulate gradients inside, without communication."""
        with self.lightning_module.no_sync() if self._trains is not None else contextlib.nullcontext():
            yield

    def on_validation_start(self) -> None:
        """Apply late gradients before the model is evaluated."""
        self._apply_late()

    def on_train_end(self) -> None:
        """Apply late gradients: training is over."""
        self._apply_late()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the model's state for a checkpoint, with late gradients applied. All ranks call it."""
        self._apply_late()
        found: dict[str, Any] = super().lightning_module_state_dict()
        return found

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return an optimizer's whole state, also where owners have parts of it. All ranks call it."""
        plain = getattr(optimizer, "_optimizer", optimizer)
        if self._trains is not None and distributed_of(self._trains).framework.optimizer is plain:
            return optimizer_state(self._trains)
        found: dict[str, Any] = super().optimizer_state(optimizer)
        return found

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Save a checkpoint, with what Hocket keeps on each rank, unless it is of weights alone. All ranks call it."""
        if self._trains is not None and "optimizer_states" in checkpoint:
            own = state_dict(self._trains)
            everyone: list[Any] | None = [None] * self.world_size if self.is_global_zero else None
            if self.world_size > 1:
                dist.gather_object(own, everyone)
            checkpoint = {**checkpoint, KEY: everyone if self.world_size > 1 else [own]}
        super().save_checkpoint(checkpoint, filepath, storage_options=storage_options)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load the optimizers' state, then what Hocket has kept: of this rank, or in a larger job rank 0's."""
        super().load_optimizer_state_dict(checkpoint)
        if self._trains is not None and KEY in checkpoint:
            saved = checkpoint[KEY]
            load_state_dict(self._trains, saved[self.global_rank if self.global_rank < len(saved) else 0])

    def teardown(self) -> None:
        """End the fit; the model stays distributed until it is fitted again, so that it may be saved."""
        model = self._trains
        if model is not None and distributed_of(model).session.owners:
            # Nobody can read these, and Lightning is about to move all gradients to the CPU.
            model.zero_grad()
        for name in ("clip_grad_by_norm", "clip_grad_by_value"):
            self.precision_plugin.__dict__.pop(name, None)
        super().teardown()

    @property
    def _trains(self) -> torch.nn.Module | None:
        """Return the Trainer's model, if it is distributed."""
        return self._distributed if self._distributed is self.lightning_module else None

    def _apply_late(self) -> None:
        if self._trains is not None:
            apply_late(self._trains)

    def _clip_by_norm(self, optimizer: Any, clip_val: float) -> None:
        clip_norm(self.lightning_module, self.precision_plugin.main_params(optimizer), clip_val)

    def _clip_by_value(self, optimizer: Any, clip_val: float) -> None:
        distributed_of(self.lightning_module).session.settle()
        torch.nn.utils.clip_grad_value_(self.precision_plugin.main_params(optimizer), clip_val)
