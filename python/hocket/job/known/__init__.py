"""Knowledge of earlier jobs for later ones: a cache of files, and facts about a cluster."""
