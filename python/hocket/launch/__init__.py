"""Start ranks and let them find each other: `run` starts processes, `rendezvous.join` makes them a job."""
