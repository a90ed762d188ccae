"""Checks of machine and installation: what was found, what is wanted, how to mend it."""
