"""`python -m benches elastic`: how long a job stands still when ranks die, leave and join, against TorchElastic and torchft."""
