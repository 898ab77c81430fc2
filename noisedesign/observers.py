"""Who looks at a run, and what it sees: what :func:`noisedesign.account` and problems are asked of.

Every function here gives an Observer, or a set of coalitions of them."""

from noisedesign import _face

__all__, __getattr__, __dir__ = _face(__name__)
