"""`python -m hocket`: the command line, where its script is not on the path."""

from hocket.cli.main import main

main()
