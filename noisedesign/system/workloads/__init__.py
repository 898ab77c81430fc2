"""What a design's error is: which models, which steps, and what noise passes through on its way.

An :class:`Objective` says what is measured; the three Gram functions turn it and a mixing into
the H of the convex program, in space, in time or in both.
"""

from noisedesign.system.workloads.grams import space_gram, space_time_gram, time_gram
from noisedesign.system.workloads.objective import ERRORS, Objective

__all__ = ["ERRORS", "Objective", "space_gram", "space_time_gram", "time_gram"]
