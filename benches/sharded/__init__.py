"""FSDP2 inside hosts, and who reduces between them: `python -m benches sharded`."""
