"""Gradients on this machine's accelerator: Hocket, DistributedDataParallel on Gloo, and Hocket with gradients on the processor."""
