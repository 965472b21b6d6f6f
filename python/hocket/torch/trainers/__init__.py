"""`hk.distribute` under trainers that have ranks of their own: Accelerate, transformers' Trainer and Lightning.

    accelerator = hk.accelerate(Accelerator())
    trainer = hk.trainer(Trainer(…))
    trainer = Trainer(strategy="hocket")        # after `import hocket.torch.trainers.lightning`

Each keeps what it does around a step: its ranks, samplers, metrics, checkpoints. Only its DistributedDataParallel is left out. A
trainer is loaded by its user alone: nothing here imports one before that, but for the two modules of Lightning.
"""
