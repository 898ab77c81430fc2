"""A comparison that anyone can rerun: every backend on every problem, and what the times say.

`run` keeps one row a problem and backend in a table that an interruption does not spoil,
`performance` makes curves and means of the rows, and draws the curves.
"""

from noisedesign.tasks.compare.performance import Profile, profiles, shifted_geometric_mean, summary
from noisedesign.tasks.compare.run import Comparison, compare

__all__ = ["Comparison", "Profile", "compare", "profiles", "shifted_geometric_mean", "summary"]
