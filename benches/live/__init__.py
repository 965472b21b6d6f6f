"""What a live look at a job costs its ranks, and how long a look takes."""
