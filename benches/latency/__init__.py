"""All-reduces between two far sites, whose trunk loses packets: the share of the trunk that jobs without files use."""
