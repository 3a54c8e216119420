"""The parts of docs/reference that are made from the code: commands, settings, stacks, models."""
