"""What calls give: an Evaluation, a Verification and so on, and what a solve goes on from."""

from noisedesign import _face

__all__, __getattr__, __dir__ = _face(__name__)
