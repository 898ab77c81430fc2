"""Graphs that change at random, W without a dense array, and the W of least noise.

They are what :func:`noisedesign.build_graph` and :func:`noisedesign.mixing_matrix` leave out; a
problem takes random mixing as ``random``."""

from noisedesign import _face

__all__, __getattr__, __dir__ = _face(__name__)
