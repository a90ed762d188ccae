"""Comparison -> text; no I/O."""
