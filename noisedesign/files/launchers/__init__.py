"""Programs that exports write beside their numbers, to be run with a trainer's own packages alone:
nothing of noisedesign is imported there, and no Python newer than the trainer's is needed."""
