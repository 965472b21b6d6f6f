"""Lightning's strategy `hocket`, for `import lightning`; registered when this module is imported.

import hocket.torch.trainers.lightning

trainer = lightning.Trainer(accelerator="cpu", devices=4, strategy="hocket")
"""

from hocket import extras

extras.need("lightning", "hocket.torch.trainers.lightning")

from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry  # noqa: E402  # may not be installed

from hocket.torch.trainers.strategy import Distributed  # noqa: E402  # as above


class HocketStrategy(Distributed, DDPStrategy):  # type: ignore[misc]
    """Strategy that trains a LightningModule by `hk.distribute`, in place of DistributedDataParallel.

    trainer = lightning.Trainer(strategy=HocketStrategy(promise="rounded"), accelerator="cpu", devices=4)
    """


StrategyRegistry.register(
    "hocket", HocketStrategy, description="trains by hocket.torch.distribute", override=True
)
