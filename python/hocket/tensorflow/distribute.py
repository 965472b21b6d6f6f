"""`distribute`, which makes a process's variables train together with those of the other ranks, and its companions."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

import tensorflow as tf

from hocket import _native
from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.policy.policy import Policy
from hocket.settings import Settings
from hocket.tensorflow.variables import Variables
from hocket.training.assemble.compiled_job import CompiledJob, Distributed

Given = TypeVar("Given")
Found = Distributed[Variables]
"""Variables in training."""

_job = CompiledJob[Variables]("hk.distribute(variables)")
distributed = _job.distributed
agreed = _job.agreed
log = _job.log
rank = _job.rank
record = _job.record
world = _job.world


def distribute(
    variables: Given,
    *,
    plan: Plan | None = None,
    policy: Policy | None = None,
    promise: Promise | str | None = None,
    settings: Settings | None = None,
) -> Given:
    """Train `variables` together with the other ranks of the job: they get rank 0's values, on every rank.

    Gradients are reduced where `mean` is called, or a `DistributedGradientTape`. A process trains one set of variables at a
    time: a further call takes the place of the one before, whose functions then raise.

    Args:
        variables: a list or another structure of variables, or a `tf.Module`, whose variables are taken. Trainable ones of f64,
            f32, f16 and bf16 are trained, the others are only made equal.
        plan: default: the plan file of `settings`, else one for the cluster of `settings`, else one for the network that the job
            finds as it starts, else one from the hosts alone. Rank 0's files count. A default plan follows the order in which
            backward makes gradients, which the first step records.
        policy: decides how gradients travel, instead of a plan; default: the policy of `settings`.
        promise: how far results may be from exact means, as with `hocket.torch.distribute`.
        settings: default: from the environment. Settings that would need to see into compiled functions are refused.

    Returns its argument.

    Raises:
        RendezvousError: ranks do not meet, or their variables differ.
        ArtefactError: the plan is not sound, or for another model.
        UsageError: variables, devices or a TensorFlow that Hocket does not support, or a plan or policy that compiled functions
            cannot keep.
        PolicyError: the policy cannot be traced or is refused.

    >>> import tensorflow as tf
    >>> weights = tf.Variable([1.0, 2.0])
    >>> distribute([weights])[0].numpy().tolist()
    [1.0, 2.0]
    """
    check_runtime()
    train(Variables(variables), plan=plan, policy=policy, promise=promise, settings=settings)
    return variables


def train(
    model: Variables,
    *,
    plan: Plan | None,
    policy: Policy | None,
    promise: Promise | str | None,
    settings: Settings | None,
) -> None:
    """Distribute variables that were checked; `check_runtime` comes before."""
    session = _job.distribute(model, plan=plan, policy=policy, promise=promise, settings=settings).session

    def execution() -> int:
        with session.execution() as turn:
            return turn

    session.group.answer_begin(execution)


def check_runtime() -> None:
    """Raise UsageError if Hocket does not know this TensorFlow, or it is used in a way that Hocket does not support."""
    if not tf.executing_eagerly():
        raise UsageError(
            "hk.distribute reads and writes variables, which a graph cannot\n"
            "hint: call it outside of tf.function, and without tf.compat.v1.disable_eager_execution"
        )
    if tf.distribute.has_strategy():
        raise UsageError(
            "hk.distribute under a tf.distribute.Strategy, which reduces gradients itself\n"
            "hint: call it outside of strategy.scope()"
        )
    # Beside a strategy's cluster, devices of other processes are listed, too: by job, replica and task.
    places = Counter(each.name.rpartition("/device:")[0] for each in tf.config.list_logical_devices("CPU"))
    most = max(places.values())
    if most > 1:
        raise UsageError(
            f"this process has {most} devices of TensorFlow, and a rank has one\n"
            "hint: without tf.config.set_logical_device_configuration; more ranks instead"
        )
    if not tf.__version__.startswith("2."):
        raise UsageError(f"TensorFlow {tf.__version__} is newer than this Hocket\nhint: TensorFlow 2.21")
    _native.tensorflow_register(tf.__version__)
