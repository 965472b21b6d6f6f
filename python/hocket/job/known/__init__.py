"""What earlier jobs left for later ones: a cache of files, and what was learned of a cluster."""
