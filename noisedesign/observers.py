"""Observers of a run: before whom :func:`noisedesign.account` and problems say what is learnt.

Every function here gives an Observer, or a set of coalitions of them."""

from noisedesign import _face

__all__, __getattr__, __dir__ = _face(__name__)
