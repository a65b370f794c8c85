"""`python -m tang_edge.cli`: the command line."""

from tang_edge.cli import main

main()
