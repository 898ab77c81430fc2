"""Types of what calls give, as an Evaluation, and the file that a solve goes on from."""

from noisedesign import _face

__all__, __getattr__, __dir__ = _face(__name__)
