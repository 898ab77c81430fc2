"""Exported matrices put to work: D-SGD run with their noise, in numpy and nothing else."""
