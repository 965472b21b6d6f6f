"""Dumps: what each rank had called when its job failed, as files that PyTorch's `fr_trace` compares."""
