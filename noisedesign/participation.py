"""When one record takes part: schemes by their own numbers, or ``from_records`` of a run.

``from_records(records=..., batch_size=..., epochs=...)`` of every scheme makes it from the records
of one node."""

from noisedesign import _face

__all__, __getattr__, __dir__ = _face(__name__)
