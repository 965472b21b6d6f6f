"""The command line: one verb per module, each the functions of the package with arguments."""
