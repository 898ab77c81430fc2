"""The content of an export: the arrays that noise is drawn from, and the facts about them.

A generic format writes and reads :class:`Exported`, and knows no design. ``multiply_by`` is a
factor on the noise (its standard deviation), so that R is multiplied by its square."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError, describe
from noisedesign.base.nodes import Node
from noisedesign.design.design import AGAINST_OBSERVERS, Design
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.files.design_arrays import arrays_of
from noisedesign.forms import Noise, noise_of_arrays
from noisedesign.forms.node_plan import node_plan
from noisedesign.forms.streams import Seed
from noisedesign.noise.plan import Claim, Plan, claim_of_json
from noisedesign.problem.calibration import Calibration, calibration_of

FORMAT, VERSION = "noisedesign-export", 1
FIELD = "export"

PROBLEM_ARRAYS = (
    *("mixing", "budget", "pattern_budget", "pair_factors"),
    *("max_variance", "min_variance", "gram"),
)
"""W, tau, limits and H of the problem, which formats of many arrays hold beside the noise."""

NO_TARGET = (
    "No privacy target, so nobody is protected yet: multiply the noise (R by the square) by the "
    "change of a step (twice the clip for replace adjacency, else the clip) over mu, the root of "
    "the largest budget and, for noise that is drawn afresh at every step, the root of the number "
    "of steps in which one record takes part."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Exported:
    """Noise as a file holds it.

    Attributes:
        noise: as it stands in the file.
        metadata: JSON values: ``calibrated``, ``multiply_by``, ``note``, facts of the design and
            its privacy, null where nothing is known.
        beside: arrays of the problem, by name.

    Examples:
        Noise in the file is scaled to the target: nothing is left to multiply by.

        >>> import noisedesign as nd
        >>> from noisedesign.files import exports
        >>> target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> written = nd.export(nd.solve(problem).design, to="npy", path="prefix.npy")
        >>> found = exports.read(written[0])
        >>> found.metadata["calibrated"], found.multiply_by, found.metadata["epsilon"]
        (True, 1.0, 1.0)
    """

    noise: Noise
    metadata: dict[str, Any]
    beside: Mapping[str, Array] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The metadata as JSON."""
        return to_json(self.metadata)

    def arrays(self) -> dict[str, Array]:
        """The arrays of the noise and those of the problem.

        Returns:
            They, by name.
        """
        return {**self.noise.arrays(), **self.beside}

    @property
    def multiply_by(self) -> float | None:
        """Factor on the noise that gives the privacy stated; None where there was no target."""
        value = self.metadata["multiply_by"]
        return None if value is None else float(value)

    def scaled(self, multiply_by: float | None = None) -> Noise:
        """The noise to add, times the factor of the file or, where it has none, the one given.

        Args:
            multiply_by: the factor, not squared; None: that of the file.

        Returns:
            The noise.

        Raises:
            InputError: neither.
        """
        used = factor(multiply_by, stated=self.multiply_by)
        return self.noise if used == 1 else self.noise.scaled(used)

    def node_plan(self, node: Node | None = None, *, batch_size: int | None = None) -> Plan:
        """The plan of one node, that of the design where the file holds the same noise. A file of R
        and not of its seeds has noise from a trusted party.

        Args:
            node: its name, a text, or its row, zero-based; needed where nodes differ.
            batch_size: as of :meth:`noisedesign.Design.node_plan`.

        Returns:
            The plan, which :func:`noisedesign.noise.noise` draws from.

        Raises:
            InputError: no such node; no privacy target; noise that does not protect every
                message; metadata without what an export says of its privacy.
        """
        return node_plan(
            self.scaled(),
            self.claim,
            node=node,
            names=tuple(map(str, self.metadata.get("nodes") or ())),
            batch_size=batch_size,
        )

    @cached_property
    def claim(self) -> Claim:
        """The privacy of its noise once it is :meth:`scaled`.

        Raises:
            InputError: as :meth:`node_plan`.
        """
        said = self.metadata
        if said.get("epsilon") is None:
            remedy = "State epsilon, delta and clip in [privacy], and export the design again."
            raise InputError(f"{FIELD}.epsilon", expected="a target", got="none", remedy=remedy)
        if said.get("trust") != "local":
            expected, got = "noise that protects every message", describe(said.get("trust"))
            raise InputError(f"{FIELD}.trust", expected=expected, got=got)
        try:
            beside = {"batch_size": None, "confidence": said.get("confidence")}
            needed = [item.name for item in fields(Claim) if item.name not in beside]
            return claim_of_json({name: said[name] for name in needed} | beside)
        except (KeyError, TypeError, ValueError) as error:
            remedy = "Export the design again."
            expected = "what an export says of its privacy"
            raise InputError(FIELD, expected=expected, got=str(error), remedy=remedy) from None

    def stream(
        self,
        *,
        dimension: int,
        seed: Seed,
        steps: int | None = None,
        nodes: int | None = None,
        multiply_by: float | None = None,
    ) -> Iterator[Array]:
        """Noise to add to the sums of clipped gradients, one step after another, for simulation;
        :func:`noisedesign.noise.noise` is for deployment.

        Args:
            dimension: d, coordinates of the model.
            seed: the same seed gives the same noise.
            steps: as of :meth:`Noise.stream`.
            nodes: likewise.
            multiply_by: as of :meth:`scaled`.

        Returns:
            Arrays of shape (n, d), one a step.

        Raises:
            InputError: no factor on the noise, in the file or given; a wrong dimension, seed or
                number.
        """
        return self.scaled(multiply_by).stream(
            dimension=dimension, seed=seed, steps=steps, nodes=nodes
        )


def factor(given: float | None, *, stated: float | None) -> float:
    """The factor on the noise of a file: the one given, else the one stated."""
    found = stated if given is None else given
    if found is None:
        expected = "the factor on the noise that your privacy asks for"
        got = "nothing, and no privacy target in the file"
        raise InputError("multiply_by", expected=expected, got=got, remedy=NO_TARGET)
    return _checks.scale(found, field="multiply_by")


def to_json(values: dict[str, Any]) -> str:
    """Indented JSON; non-finite numbers must have become words by now."""
    return json.dumps(values, allow_nan=False, ensure_ascii=False, indent=2) + "\n"


def facts(
    design: Design | StreamingDesign, *, problem_text: str = "", found: Calibration | None = None
) -> dict[str, Any]:
    """The facts that a reader of an exported matrix needs, as JSON values; infinity is a word."""
    stated: Any = design if isinstance(design, StreamingDesign) else design.problem
    found = found or _calibration(design)
    target, known, scheme = stated.privacy, found.epsilon is not None, found.participation
    mixes, at_random = {}, {}
    if (rounds := getattr(stated, "rounds", 1)) > 1:
        mixes["gossip_rounds"] = int(rounds)
    if (schedule := getattr(stated, "schedule", None)) is not None:
        mixes["steps_of_schedule"] = len(schedule)
    if scheme is not None and scheme.random and not isinstance(design, StreamingDesign):
        account = design.certificate.account or found.account
        at_random = {
            "mu": design.fixed_mu,  # which holds without random participation
            "account": account and account.which,
            "confidence": account and account.confidence,
        }
    values = {
        "name": stated.name,
        "design": design.axes,
        "nodes": list(stated.nodes),
        **mixes,
        **_named(design.certificate, "objective lower_bound gap"),
        **_named(design.certificate, "sensitivity_squared sensitivity_kind"),
        "trust": design.trust,
        "privacy": None if target is None else asdict(target),
        "problem": problem_text,
        "noise_stddev": found.noise_stddev if known else None,
        "noise_multiplier": found.noise_multiplier if known else None,
        **_named(found, "mu epsilon delta adjacency clip step_sensitivity horizon"),
        **at_random,
        "participation": scheme and str(scheme),
        "participation_kind": scheme and scheme.kind,
        "max_participations": scheme and scheme.largest_size,
        "separation": scheme and scheme.stride,
        "rule": scheme and scheme.rule.to_json(),
    }
    if scheme is not None and scheme.random:
        values["loader"] = (
            "Privacy rests on every node drawing in secret who takes part when, anew for every "
            "run, as noisedesign.noise.RandomBatches does, and on sums over a fixed number."
        )
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def _calibration(design: Design | StreamingDesign) -> Calibration:
    if isinstance(design, StreamingDesign):
        return design.calibration
    return calibration_of(design.problem)


def _named(of: object, names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names.split()}


def trainer_facts(design: Design, *, note: str, problem_text: str) -> dict[str, Any]:
    """The facts of a design whose noise a trainer's file holds scaled to the target, if any."""
    found = facts(design, problem_text=problem_text)
    known = found["epsilon"] is not None
    return found | {
        "calibrated": known,
        "multiply_by": 1.0 if known else None,
        "note": note if known else f"{NO_TARGET} {note}",
    }


def require_feasible(design: Design | StreamingDesign) -> None:
    """Refuse a design that nothing can be claimed of."""
    if not design.certificate.feasible:
        got = f"squared sensitivity {design.certificate.sensitivity_squared:.6g} of its budget"
        raise InputError("design", expected="a feasible design", got=got)


def require_protection(design: Design) -> None:
    """Refuse to hand a trainer noise that does not protect every message it sends."""
    if design.trust == "local":
        return require_feasible(design)
    got = f"a baseline for a trusted server ({design.provenance.method})"
    where = "to study it"
    if design.trust == AGAINST_OBSERVERS:
        got, where = "noise against chosen observers only", "where nobody else sees messages"
    remedy = f"Export it to npy, csv, mat or safetensors {where}."
    raise InputError("design", expected="noise that protects every message", got=got, remedy=remedy)


def content_of(
    design: Design | StreamingDesign, noise: Noise, *, problem_text: str, calibrated: bool | None
) -> Exported:
    """The export of a design whose noise, at unit sensitivity or its budgets, is ``noise``."""
    if design.trust != "central":
        require_feasible(design)
    found = _calibration(design)
    stored = {} if isinstance(design, StreamingDesign) else arrays_of(design)
    beside = {name: stored[name] for name in PROBLEM_ARRAYS if name in stored}
    target = found.epsilon is not None
    if calibrated and not target:
        expected = "a design with a privacy target"
        remedy = "State one in [privacy], or export it as it is."
        raise InputError("calibrated", expected=expected, got="one without", remedy=remedy)
    calibrated = target if calibrated is None else calibrated
    note = "Not scaled to the privacy target: multiply the noise by multiply_by, R by its square."
    metadata = facts(design, problem_text=problem_text, found=found) | {
        "format": FORMAT,
        "version": VERSION,
        "noise": {
            "kind": noise.axes,
            "steps": noise.steps,
            "nodes": noise.nodes,
            "full": noise.full,
            "strategy": None if noise.strategy is None else noise.strategy.kind,
        },
        "calibrated": calibrated,
        "multiply_by": 1.0 if calibrated else found.noise_stddev if target else None,
        "note": note if target else NO_TARGET,
    }
    if calibrated:
        noise = noise.scaled(found.noise_stddev)
        where = "covariance (its square), or in the coefficients of the seeds, and not in C"
        if noise.space is None:
            assert noise.strategy is not None
            where = f"{', '.join(noise.strategy.names)} (C is divided by it, C^-1 multiplied)"
        metadata["note"] = (
            "Scaled to the privacy target: draw from the arrays as they are, since the factor "
            f"noise_stddev stands in {where}."
        )
    return Exported(noise=noise, metadata=metadata, beside=beside)


def parsed_metadata(text: str | bytes, path: Path) -> dict[str, Any]:
    """The metadata of an export, checked for what drawing depends on."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise not_ours(path, f"no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise not_ours(path, "JSON of another kind")
    if found.get("version") != VERSION:
        got = f"version {describe(found.get('version'))} in {path}"
        raise InputError(f"{FIELD}.version", expected=f"version {VERSION}", got=got)
    factor, noise = found.get("multiply_by"), found.get("noise")
    if not isinstance(noise, dict) or not isinstance(noise.get("full"), bool):
        raise not_ours(path, "metadata without noise")
    for key in ("steps", "nodes"):
        if noise.get(key) is not None:
            _checks.positive_int(noise[key], field=f"{FIELD}.noise.{key}")
    if factor is not None:
        _checks.real(factor, field=f"{FIELD}.multiply_by", low=0)
    return found


def content_from(found: Mapping[str, Any], metadata: dict[str, Any]) -> Exported:
    """The content of a file with these arrays and checked metadata."""
    arrays, said = {name: np.asarray(array) for name, array in found.items()}, metadata["noise"]
    for name, array in arrays.items():
        if array.dtype != np.float64:
            raise InputError(f"{FIELD}.{name}", expected="float64", got=str(array.dtype))
    noise = noise_of_arrays(
        arrays, steps=said.get("steps"), nodes=said.get("nodes"), full=said["full"], field=FIELD
    )
    form = None if noise.strategy is None else noise.strategy.kind
    if (noise.axes, form) != (said.get("kind"), said.get("strategy")):
        expected = f"{describe(said.get('kind'))} noise, as its metadata say"
        raise InputError(f"{FIELD}.noise", expected=expected, got=f"arrays of {noise.axes} noise")
    beside = {name: array for name, array in arrays.items() if name in PROBLEM_ARRAYS}
    return Exported(noise=noise, metadata=metadata, beside=beside)


def not_ours(path: Path, got: str) -> InputError:
    """The error for a file that no generic exporter wrote."""
    return InputError(FIELD, expected="a file of `noisedesign export`", got=f"{path}: {got}")
