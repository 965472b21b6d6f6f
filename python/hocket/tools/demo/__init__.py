"""Main job of the demo: the same training with DDP, with DDP's f16 hook and with Hocket, on one emulated cluster."""
