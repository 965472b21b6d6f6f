"""Sources of buckets' programs: a plan, a policy that is traced, or a file of one run."""
