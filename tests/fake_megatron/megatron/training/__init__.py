"""What dpbench asks a checkout for beside its script: the parser."""
