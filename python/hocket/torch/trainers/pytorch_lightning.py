"""Lightning's strategy `hocket`, for `import pytorch_lightning`; registered when this module is imported.

import hocket.torch.trainers.pytorch_lightning

trainer = pytorch_lightning.Trainer(accelerator="cpu", devices=4, strategy="hocket")
"""

from hocket import extras

extras.need("pytorch_lightning", "hocket.torch.trainers.pytorch_lightning")

from pytorch_lightning.strategies import DDPStrategy, StrategyRegistry  # noqa: E402  # may not be installed

from hocket.torch.trainers.strategy import Distributed  # noqa: E402  # as above


class HocketStrategy(Distributed, DDPStrategy):  # type: ignore[misc]
    """Strategy that trains a LightningModule by `hk.distribute`, in place of DistributedDataParallel.

    trainer = pytorch_lightning.Trainer(strategy=HocketStrategy(promise="rounded"), accelerator="cpu", devices=4)
    """


StrategyRegistry.register(
    "hocket", HocketStrategy, description="trains by hocket.torch.distribute", override=True
)
