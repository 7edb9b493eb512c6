"""`python -m mpnet` is the command `mpnet`."""

from mpnet.cli.main import main

main()
