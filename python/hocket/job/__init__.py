"""How the ranks of a job find and know one another: identity, rendezvous, store, secrets, and knowledge of earlier jobs."""
