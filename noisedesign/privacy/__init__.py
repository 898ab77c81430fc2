"""Privacy loss and its units, the ledger of several runs, and what a shorter run gives away.

mu, epsilon and delta turn into each other by ``mu_of``, ``epsilon_of`` and ``delta_of``."""

from noisedesign import _face

__all__, __getattr__, __dir__ = _face(__name__)
