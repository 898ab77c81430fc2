"""Buffered strategies whose sensitivity is finite over all time, for runs without an end."""
