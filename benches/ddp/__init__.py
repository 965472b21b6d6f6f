"""`python -m benches ddp`: ways of training with PyTorch, with DDP on Gloo and with Hocket, compared number by number."""
