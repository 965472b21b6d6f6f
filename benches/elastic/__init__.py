"""`python -m benches elastic`: pauses of a job when ranks die, leave and join, against TorchElastic and torchft."""
