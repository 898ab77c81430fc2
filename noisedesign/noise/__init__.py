"""Noise for training runs: what one node draws, step by step, from its own secrets.

It loads numpy and cryptography and nothing else, so that a node needs no solver::

    from noisedesign.noise import Secret, noise

    source = noise("node-0.plan", secret=Secret.new())
    source.add_(gradients, step, records=batch)  # the sum of clipped gradients, a list of arrays

What there is, by what it is for:

- noise: noise, NodeNoise, Secret, Record; in integers: integer_noise, IntegerNoise;
- what a node must know: Plan, Claim, Stream;
- who takes part when: Attendance, Rule, Randomness, Batches, RandomBatches;
- seeds that nodes share: Agreement, Identity, deal."""

# A name is loaded with its module when it is first asked for (PEP 562).

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisedesign.noise.agreement import (
        Agreement as Agreement,
        Identity as Identity,
        deal as deal,
    )
    from noisedesign.noise.attendance import Attendance as Attendance
    from noisedesign.noise.batches import Batches as Batches, RandomBatches as RandomBatches
    from noisedesign.noise.integer import (
        IntegerNoise as IntegerNoise,
        integer_noise as integer_noise,
    )
    from noisedesign.noise.keys import Secret as Secret
    from noisedesign.noise.plan import Claim as Claim, Plan as Plan, Stream as Stream
    from noisedesign.noise.record import Record as Record
    from noisedesign.noise.rules import Randomness as Randomness, Rule as Rule
    from noisedesign.noise.source import NodeNoise as NodeNoise, noise as noise

_NAMES = {
    "agreement": "Agreement Identity deal",
    "attendance": "Attendance",
    "batches": "Batches RandomBatches",
    "integer": "IntegerNoise integer_noise",
    "keys": "Secret",
    "plan": "Claim Plan Stream",
    "record": "Record",
    "rules": "Randomness Rule",
    "source": "NodeNoise noise",
}
_MODULES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


class _Callable(ModuleType):
    """A package that is called as its function of the same name: nd.noise(design, ...)."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.noise(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
