"""Where the programs of buckets come from: a plan, a policy that is traced, or a file of one run."""
