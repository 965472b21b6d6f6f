"""The command line: one verb per module, each a function of the package with arguments."""
