"""Identity, rendezvous, store and secrets of a job's ranks, and knowledge of earlier jobs."""
