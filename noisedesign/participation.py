"""Schemes of participation: at which steps one record takes part.

Each is made from numbers of its own or from those of a run of one node, by
``from_records(records=..., batch_size=..., epochs=...)``."""

from noisedesign import _face

__all__, __getattr__, __dir__ = _face(__name__)
