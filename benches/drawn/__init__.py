"""Plans for unselected clusters: random ones, and three on the testbed; compared with other kinds of search."""
