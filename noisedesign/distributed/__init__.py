"""Designs for graphs that no process holds: W by its rows, in parts (docs/guides/beyond-one-machine)."""
