"""The arrays of a design file: those of the noise, of the problem, and what its family proves.

The noise knows the arrays that determine it, the problem states its own, and the family of the
problem says what proves the bound (:attr:`noisedesign.program.family.Family.proof`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base import memory
from noisedesign.base.checks import Array, InputError
from noisedesign.files.manifest import FIELD, Manifest, participation_of
from noisedesign.privacy.views import Coalitions, Observer
from noisedesign.program.design import Design
from noisedesign.program.family import ANY, ArraySpec, Family, family_at, family_of
from noisedesign.program.noise import (
    FORMS,
    MIXING_ARRAYS,
    STRATEGIES,
    DenseStrategy,
    Noise,
    mixing_arrays,
    mixing_of_arrays,
    sparse_covariance_of_arrays,
    strategy_of_arrays,
)
from noisedesign.program.problem import JOINTS, Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.program.registry import REGISTRY
from noisedesign.system.workloads import WORKLOADS

STATED = {
    "gram": ArraySpec("H", "TT"),
    "mixing": ArraySpec("W", "nn"),
    **{name: ArraySpec(what, ANY) for name, what in MIXING_ARRAYS.items()},
    "schedule": ArraySpec("W of every step, in turn", ANY),
    "budget": ArraySpec("tau", "n"),
    "pair_factors": ArraySpec("factors on tau, observers by nodes", ANY),
    "max_variance": ArraySpec("cap on variances, of nodes or, of designs in time, of steps", ANY),
    "min_variance": ArraySpec("floor on diag(R)", "n"),
}
"""What a problem states in arrays, by its attributes: n nodes, T steps."""

_STRATEGY = {name: ArraySpec(what, ANY) for kind in STRATEGIES for name, what in kind.names.items()}
_FORMS = {name: ArraySpec(what, ANY) for form in FORMS for name, what in form.names.items()}
NOISE = _STRATEGY | {"covariance": ArraySpec("R", "nn")} | _FORMS
"""What determines noise: R at the stated budgets, C of unit sensitivity by the numbers of its kind
(:mod:`noisedesign.program.noise.strategies`, which checks their shapes); on large graphs R by the
numbers of its kind (:mod:`noisedesign.program.noise.sparse_forms`). Of a full space-time
design C is at the stated budgets, and there is no R."""

_IN_SPACE = {"covariance": True, "mixing": True, "schedule": False, "budget": True}
_IN_SPACE["max_variance"] = False
_IN_TIME = dict.fromkeys(_STRATEGY, False)
_OF_AXES = {
    "space": _IN_SPACE
    | dict.fromkeys([*MIXING_ARRAYS, *_FORMS, "min_variance", "pair_factors"], False),
    "time": _IN_TIME | {"gram": False, "mixing": False, "schedule": False, "max_variance": False},
    "space-time": _IN_TIME | _IN_SPACE,
}
"""Which of these a file has, by the axes of its noise, and whether it must: C is in one form, and H
is left out where it is formed again."""

MOST_STEPS = 1_000_000
"""Of the error of a spatial design, which no array has the size of."""

DENSE = "dense"
"""The kind of noise without a structure."""

_DUAL, _RELAXED = "dual_", "unrestricted_"


def relaxed_name(name: str) -> str:
    """How an array that proves the bound on designs of every structure is stored, beside one of the
    same name that proves that of the structure."""
    return _RELAXED + name.removeprefix(_DUAL) if name.startswith(_DUAL) else name


def main_array(arrays: Iterable[str]) -> str:
    """The array that noise is first of all: C in whatever form or, where there is none, R."""
    return next(name for name in NOISE if name in arrays)


def arrays_of(design: Design) -> dict[str, Array]:
    """The arrays that determine ``design``: noise, problem, proofs."""
    problem, known = design.problem, _OF_AXES[design.axes]
    stated = {name: getattr(problem, name, None) for name in STATED if name in known}
    if _formed_again(design):
        stated["gram"] = None
    if problem.sparse:
        stated |= {"mixing": None} | mixing_arrays(problem.mixing)
    proofs = dict(design.proof)
    proofs |= {relaxed_name(name): array for name, array in design.relaxed_proof.items()}
    order = specs_of(problem, proofs)
    found = (
        design.noise.arrays() | stated | {name: proofs[name] for name in order if name in proofs}
    )
    return {name: array for name, array in found.items() if array is not None}


def _formed_again(design: Design) -> bool:
    """Whether H is left out, for what it is formed from: beside a C of few numbers it would be
    nearly all of the file."""
    workload = WORKLOADS.get(getattr(design.problem, "workload", ""))
    formed = workload is not None and workload.form is not None
    return formed and not isinstance(design.noise.strategy, DenseStrategy)


def specs_of(problem: Problem, names: Iterable[str] = ()) -> dict[str, ArraySpec]:
    """What arrays the file of a design of ``problem`` may hold, in their order.

    Where there are other ``names``, they may be those of another structure along the same axes:
    then the noise is not of the structure that is claimed, which is for a judge to say.
    """
    own, outer = _proofs(problem, family_of(problem).relaxed(problem))
    known = {name: (NOISE | STATED)[name] for name in _OF_AXES[problem.axes]} | own | outer
    if not set(names) <= set(known) and (problem.axes, DENSE) in REGISTRY:
        for axes, kind in REGISTRY:
            if axes == problem.axes:
                known = known | _proof(family_at(axes, kind), problem)
    return known


def _proofs(
    problem: Problem, wider: Problem | None
) -> tuple[dict[str, ArraySpec], dict[str, ArraySpec]]:
    """Of the families of a problem and its relaxation, the latter by the names they are stored."""
    outer = {} if wider is None else _proof(family_of(wider), wider)
    stored = {}
    for name, spec in outer.items():
        at, kind = relaxed_name(name), f"{spec.kind} without a structure"
        stored[at] = spec if at == name else ArraySpec(kind, spec.axes)
    return _proof(family_of(problem), problem), stored


def _proof(family: Family, problem: Problem) -> dict[str, ArraySpec]:
    """What proves the bound of a family, as far as the problem gives it its size."""
    sizes = set(family.sizes(problem))
    return {
        name: spec
        for name, spec in family.proof.items()
        if spec.axes == ANY or set(spec.axes) <= sizes
    }


# --- reading --------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """What the arrays of a file make."""

    problem: Problem
    noise: Noise
    proof: dict[str, Array]
    relaxed_proof: dict[str, Array]


def parts_of(arrays: Mapping[str, Array], manifest: Manifest) -> Parts:
    """The parts of a design whose arrays are intact.

    Raises:
        InputError: naming the array: missing, unknown, of another shape than the manifest implies,
            not finite; or the arrays state no valid problem.
    """
    structure = manifest.structure
    whole = structure is not None and structure.joint not in (None, "kronecker")
    full = manifest.design == "space-time" and whole
    _check_present(arrays, manifest, full=full)
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise InputError(f"{FIELD}.{name}", expected="finite entries", got="NaN or infinity")
    n = len(manifest.nodes)
    steps = None
    if manifest.design != "space":
        steps = participation_of(manifest.participation, horizon=manifest.horizon).horizon
    size = {"n": n} if steps is None else {"n": n, "T": steps}
    _check_shapes(arrays, {**NOISE, **STATED}, size)
    form = None
    if steps is not None:
        horizon = steps * n if full else steps
        if "strategy" not in arrays and not full:
            # C and H are made from fewer numbers than they have: a small file must not fill memory.
            memory.require(memory.squares, horizon, field=f"{FIELD}.horizon", of="steps")
        form = strategy_of_arrays(arrays, horizon=horizon, field=FIELD)
        if isinstance(form, DenseStrategy):
            # The stored inverse is a claim, which `verify` judges: noise is drawn by another.
            form = DenseStrategy(strategy=form.strategy)
    problem = _problem_of(arrays, manifest)
    specs = specs_of(problem, arrays)
    for name in arrays:
        if name not in specs:
            raise InputError(f"{FIELD}.{name}", expected=f"one of {', '.join(specs)}", got=name)
    family = family_of(problem)
    wider, relaxed_proof = family.relaxed(problem), {}
    own, outer = _proofs(problem, wider)
    _check_shapes(arrays, own, size | family.sizes(problem))
    if wider is not None:
        outside = family_of(wider)
        _check_shapes(arrays, outer, size | outside.sizes(wider))
        stored = {name: relaxed_name(name) for name in outside.proof}
        relaxed_proof = {name: arrays[at] for name, at in stored.items() if at in arrays}
    space: Any = arrays.get("covariance")
    if space is None:
        space = sparse_covariance_of_arrays(arrays, nodes=n, field=FIELD)
    return Parts(
        problem=problem,
        noise=Noise(steps=None, strategy=form, space=space, full=full),
        proof={name: arrays[name] for name in own if name in arrays},
        relaxed_proof=relaxed_proof,
    )


def _check_present(arrays: Mapping[str, Array], manifest: Manifest, *, full: bool) -> None:
    """Every array that must be there is; C is there in one form and, in full, so are its inverse
    and H."""
    needed = [name for name, required in _OF_AXES[manifest.design].items() if required]
    if form := next((form for form in FORMS if not set(form.names).isdisjoint(arrays)), None):
        needed = [*set(needed) - {"covariance", "mixing"}, *form.names, *MIXING_ARRAYS]
        for name in ("covariance", "mixing"):
            if name in arrays:
                expected = f"nothing beside noise of {form.kind} form"
                raise InputError(f"{FIELD}.{name}", expected=expected, got="an array")
    if full:
        needed.remove("covariance")
        if "covariance" in arrays:
            expected = "no R beside the C of all pairs of step and node"
            raise InputError(f"{FIELD}.covariance", expected=expected, got="one")
    if manifest.design != "space":
        found = [form for form in STRATEGIES if set(form.names) & set(arrays)]
        if len(found) > 1:
            got = " and ".join(form.kind for form in found)
            raise InputError(f"{FIELD}.strategy", expected="C in one form", got=got)
        needed += (found[0] if found else DenseStrategy).names
        formed = manifest.design != "time" or WORKLOADS[_workload(manifest)].form is not None
        if manifest.design == "time" and (DenseStrategy in found or not formed):
            needed.append("gram")
    for name in needed:
        if name not in arrays:
            expected = f"the array {(NOISE | STATED)[name].kind}"
            raise InputError(f"{FIELD}.{name}", expected=expected, got="nothing")


def _check_shapes(
    arrays: Mapping[str, Array], specs: Mapping[str, ArraySpec], size: Mapping[str, int]
) -> None:
    for name, spec in specs.items():
        if name not in arrays or spec.axes == ANY or not set(spec.axes) <= set(size):
            continue
        shape = tuple(size[axis] for axis in spec.axes)
        if arrays[name].shape != shape:
            raise InputError(
                f"{FIELD}.{name}", expected=f"shape {shape}", got=f"shape {arrays[name].shape}"
            )


# --- the problem ----------------------------------------------------------------------------------


def _problem_of(arrays: Mapping[str, Array], manifest: Manifest) -> Problem:
    _check_error_horizon(manifest)
    target = None if manifest.privacy is None else manifest.privacy.target()
    fields: dict[str, Any] = {"name": manifest.name, "nodes": manifest.nodes, "privacy": target}
    if "mixing_indptr" in arrays:
        size = len(manifest.nodes)
        mixing, error = mixing_of_arrays(arrays, nodes=size, field=FIELD), manifest.error
        if manifest.random is not None:
            raise InputError(f"{FIELD}.random", expected="none beside a sparse W", got="one")
        fields |= {"mixing": mixing, "rounds": manifest.rounds}
        fields["error"] = None if error is None else error.error(mixing=mixing)
    elif (mixing := arrays.get("mixing")) is not None:
        error, random = manifest.error, manifest.random
        fields |= {
            "mixing": mixing,
            "schedule": _schedule(arrays, nodes=len(mixing)),
            "rounds": manifest.rounds,
            "error": None if error is None else error.error(mixing=mixing, rounds=manifest.rounds),
            "random": None if random is None else random.random(mixing=mixing),
        }
    if manifest.participation is not None or manifest.design != "space":
        scheme = participation_of(manifest.participation, horizon=manifest.horizon)
        fields["participation"] = scheme
    return _MADE[manifest.design](arrays, manifest, fields)


def _schedule(arrays: Mapping[str, Array], *, nodes: int) -> Array | None:
    """The matrices of a schedule; their average is the W of the file."""
    found = arrays.get("schedule")
    if found is not None and (found.ndim != 3 or found.shape[1:] != (nodes, nodes)):
        expected = f"shape (P, {nodes}, {nodes})"
        raise InputError(f"{FIELD}.schedule", expected=expected, got=f"shape {found.shape}")
    return found


def _space(arrays: Mapping[str, Array], manifest: Manifest, fields: dict[str, Any]) -> Problem:
    if manifest.structure is not None:
        fields["structure"] = manifest.structure.in_space()
    # Over several steps nothing else was ever designed, whatever the file says of it.
    fixed = manifest.observers or manifest.coalitions
    return SpaceProblem(
        responses="fixed" if fixed else "any",
        budget=arrays["budget"],
        max_variance=arrays.get("max_variance"),
        min_variance=arrays.get("min_variance"),
        observers=_observers(manifest),
        pair_factors=arrays.get("pair_factors"),
        **fields,
    )


def _observers(manifest: Manifest) -> tuple[Observer, ...] | Coalitions:
    if manifest.coalitions is not None:
        return manifest.coalitions.observers()
    return tuple(entry.observer() for entry in manifest.observers)


def _time(arrays: Mapping[str, Array], manifest: Manifest, fields: dict[str, Any]) -> Problem:
    if manifest.structure is not None:
        fields["structure"] = manifest.structure.in_time()
    fields["max_variance"] = arrays.get("max_variance")
    workload = _workload(manifest)
    if "gram" in arrays:
        return TimeProblem(gram=arrays["gram"], workload=workload, **fields)
    if "mixing" not in fields and WORKLOADS[workload].of_graph:
        raise InputError(f"{FIELD}.mixing", expected="the array W", got="nothing")
    return TimeProblem.of_workload(workload, **fields)


def _workload(manifest: Manifest) -> str:
    if manifest.workload in WORKLOADS:
        return str(manifest.workload)
    *others, last = WORKLOADS
    expected = f"{', '.join(others)} or {last}"
    raise InputError(f"{FIELD}.workload", expected=expected, got=str(manifest.workload))


def _space_time(arrays: Mapping[str, Array], manifest: Manifest, fields: dict[str, Any]) -> Problem:
    structure = manifest.structure
    if structure is None or structure.joint is None:
        raise InputError(
            f"{FIELD}.structure.joint", expected=f"one of {', '.join(JOINTS)}", got="nothing"
        )
    scheme = fields.pop("participation")
    return SpaceTimeProblem(
        participation=scheme.fixed_epoch(
            field=f"{FIELD}.participation", expected="epochs and separation"
        ),
        budget=arrays["budget"],
        max_variance=arrays.get("max_variance"),
        time=structure.in_time(),
        space=structure.in_space(),
        joint=structure.joint,
        **fields,
    )


_MADE: dict[str, Callable[[Mapping[str, Array], Manifest, dict[str, Any]], Problem]] = {
    "space": _space,
    "time": _time,
    "space-time": _space_time,
}


def _check_error_horizon(manifest: Manifest) -> None:
    """The steps whose errors count, before any array of one number a step is made."""
    if manifest.error is None:
        return
    found, horizon = manifest.error.horizon, manifest.horizon
    if manifest.design != "space" and found != horizon:
        raise InputError(
            f"{FIELD}.error.horizon", expected=f"{horizon}, the horizon", got=str(found)
        )
    if found > MOST_STEPS:
        raise InputError(
            f"{FIELD}.error.horizon", expected=f"at most {MOST_STEPS} steps", got=str(found)
        )
