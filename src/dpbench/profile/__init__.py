"""Where the time of a step goes: short profile runs -> parts of a step, causes, predictions."""
