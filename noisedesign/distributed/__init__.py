"""Designs for graphs that no process holds: W by its rows, in parts."""
