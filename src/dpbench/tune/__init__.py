"""Which flags make this training faster here without changing what it learns: `dpbench tune`."""
