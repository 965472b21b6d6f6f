"""`python -m benches`: the command."""

from benches.commands import main

main()
