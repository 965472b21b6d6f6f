"""Plans of clusters that nobody chose: drawn at random, and three on the testbed; against searches of other kinds."""
