"""`python -m dpbench.cli`."""

from dpbench.cli import main

main()
