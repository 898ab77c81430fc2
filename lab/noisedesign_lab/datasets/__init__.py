"""Data sets of records: fetched from their official source, never shipped, always checked."""

from noisedesign_lab.datasets.examples import Examples, Places
from noisedesign_lab.datasets.records import a9a, california_housing, movielens_small

__all__ = ["Examples", "Places", "a9a", "california_housing", "movielens_small"]
