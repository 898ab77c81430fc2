"""The arrays of a design file: of the noise, whose form knows them, of the problem, and of the
proof of its bound, which its family lists (:attr:`noisedesign.families.family.Family.proof`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from noisedesign.base import linalg as _linalg, memory, settings
from noisedesign.base.checks import Array
from noisedesign.design.design import Design
from noisedesign.families.family import ANY, AnyFamily, ArraySpec, family_at, family_of
from noisedesign.files.manifest import FIELD, Manifest, error_of_entries, flaw, participation_of
from noisedesign.forms import (
    FORMS,
    MIXING_ARRAYS,
    STRATEGIES,
    BufferedToeplitz,
    DenseStrategy,
    Noise,
    SignedBuffers,
    mixing_arrays,
    mixing_of_arrays,
    sparse_covariance_of_arrays,
    strategy_of_arrays,
)
from noisedesign.forms.registry import REGISTRY
from noisedesign.problem.problem import JOINTS, Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.least_noise_bound import MULTIPLIERS, MixingProof
from noisedesign.system.participation import require_fixed_epoch
from noisedesign.system.workloads import WORKLOADS


def mixings_name(name: str) -> str:
    """The stored name of a multiplier of the bound for every W."""
    return f"mixings_{name}"


STATED = {  # arrays of a problem, by its attributes: n nodes, T steps
    "gram": ArraySpec("H", "TT"),
    "workload_factor": ArraySpec("L of H = L^T L", ANY),
    "mixing": ArraySpec("W", "nn"),
    **{name: ArraySpec(what, ANY) for name, what in MIXING_ARRAYS.items()},
    "schedule": ArraySpec("W of every step, in turn", ANY),
    "budget": ArraySpec("tau", "n"),
    "pattern_budget": ArraySpec("tau of every pattern of steps", ANY),
    "pair_factors": ArraySpec("factors on tau, observers by nodes", ANY),
    "max_variance": ArraySpec("cap on variances, of nodes or, of designs in time, of steps", ANY),
    "min_variance": ArraySpec("floor on diag(R)", "n"),
    **{mixings_name(name): ArraySpec(what, ANY) for name, what in MULTIPLIERS.items()},
}

_STRATEGY = {name: ArraySpec(what, ANY) for kind in STRATEGIES for name, what in kind.names.items()}
_FORMS = {name: ArraySpec(what, ANY) for form in FORMS for name, what in form.names.items()}
NOISE = _STRATEGY | {"covariance": ArraySpec("R", "nn")} | _FORMS
"""Arrays of noise, whose shapes their forms check: R at the stated budgets, and C of unit
sensitivity; a full space-time design has C at the stated budgets, and no R."""

_IN_SPACE = {"covariance": True, "mixing": True, "schedule": False, "budget": True}
_IN_SPACE["max_variance"] = False
_IN_TIME = dict.fromkeys(_STRATEGY, False)
_OF_AXES = {  # arrays that a file has, by the axes of its noise, and whether it must have them
    "space": _IN_SPACE
    | dict.fromkeys([*MIXING_ARRAYS, *_FORMS, "min_variance", "pair_factors"], False)
    | dict.fromkeys(map(mixings_name, MULTIPLIERS), False),
    "time": _IN_TIME
    | dict.fromkeys(["gram", "workload_factor", "mixing", "schedule"], False)
    | dict.fromkeys(["pattern_budget", "max_variance"], False),
    "space-time": _IN_TIME | _IN_SPACE,
}

_DUAL, _RELAXED = "dual_", "unrestricted_"


def relaxed_name(name: str) -> str:
    """The stored name of an array that proves the bound on designs of every structure."""
    return _RELAXED + name.removeprefix(_DUAL) if name.startswith(_DUAL) else name


def main_array(arrays: Iterable[str]) -> str:
    """The first array of the noise: C in whatever form or, where there is none, R."""
    return next(name for name in NOISE if name in arrays)


def arrays_of(design: Design) -> dict[str, Array]:
    """The arrays that determine ``design``: noise, problem, proofs."""
    problem, known = design.problem, _OF_AXES[design.axes]
    stated = {name: getattr(problem, name, None) for name in STATED if name in known}
    workload = WORKLOADS.get(getattr(problem, "workload", ""))
    formed = workload is not None and workload.form is not None
    if formed and not isinstance(design.noise.strategy, DenseStrategy):
        stated["gram"] = None  # beside a C of few numbers it would be nearly all of the file
    if (gram := stated.get("gram")) is not None:
        stated["workload_factor"] = _linalg.gram_factor(gram)
    if (proof := getattr(problem, "mixing_proof", None)) is not None:
        multipliers = proof.arrays().items()
        stated |= {mixings_name(name): array for name, array in multipliers if array.size}
    if problem.sparse:
        stated |= {"mixing": None} | mixing_arrays(problem.mixing)
    proofs = dict(design.proof)
    proofs |= {relaxed_name(name): array for name, array in design.relaxed_proof.items()}
    order = specs_of(problem, proofs)
    found = (
        design.noise.arrays() | stated | {name: proofs[name] for name in order if name in proofs}
    )
    return {name: array for name, array in found.items() if array is not None}


def specs_of(problem: Problem, names: Iterable[str] = ()) -> dict[str, ArraySpec]:
    """The arrays that a file may hold, in order; other ``names`` may be of another structure."""
    own, outer = _proofs(problem, family_of(problem).relaxed(problem))
    known = {name: (NOISE | STATED)[name] for name in _OF_AXES[problem.axes]} | own | outer
    if not set(names) <= set(known) and (problem.axes, "dense") in REGISTRY:
        for axes, kind in REGISTRY:
            if axes == problem.axes:
                known = known | _proof(family_at(axes, kind), problem)
    return known


def _proofs(
    problem: Problem, wider: Problem | None
) -> tuple[dict[str, ArraySpec], dict[str, ArraySpec]]:
    """Arrays of the proofs of a problem and of its relaxation, the latter by their stored names."""
    outer = {} if wider is None else _proof(family_of(wider), wider)
    stored = {}
    for name, spec in outer.items():
        at, kind = relaxed_name(name), f"{spec.kind} without a structure"
        stored[at] = spec if at == name else ArraySpec(kind, spec.axes)
    return _proof(family_of(problem), problem), stored


def _proof(family: AnyFamily, problem: Problem) -> dict[str, ArraySpec]:
    """The arrays that prove the bound of a family, as far as the problem gives them a size."""
    sizes = set(family.sizes(problem))
    return {
        name: spec
        for name, spec in family.proof.items()
        if spec.axes == ANY or set(spec.axes) <= sizes
    }


def parts_of(arrays: Mapping[str, Array], manifest: Manifest) -> dict[str, Any]:
    """Problem, noise and proofs of a design whose arrays are intact, by the names of its fields."""
    structure = manifest.structure
    whole = structure is not None and structure.joint not in (None, "kronecker")
    full = manifest.design == "space-time" and whole
    _check_present(arrays, manifest, full=full)
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise flaw(name, "finite entries", "NaN or infinity")
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
            raise flaw(name, f"one of {', '.join(specs)}", name)
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
    return {
        "problem": problem,
        "noise": Noise(steps=None, strategy=form, space=space, full=full),
        "proof": {name: arrays[name] for name in own if name in arrays},
        "relaxed_proof": relaxed_proof,
    }


def _check_present(arrays: Mapping[str, Array], manifest: Manifest, *, full: bool) -> None:
    """Refuse a file that lacks an array, or that has C in several forms or R in two."""
    needed = [name for name, required in _OF_AXES[manifest.design].items() if required]
    if form := next((form for form in FORMS if not set(form.names).isdisjoint(arrays)), None):
        needed = [*set(needed) - {"covariance", "mixing"}, *form.names, *MIXING_ARRAYS]
        for name in ("covariance", "mixing"):
            if name in arrays:
                raise flaw(name, f"nothing beside noise of {form.kind} form", "an array")
    if full:
        needed.remove("covariance")
        if "covariance" in arrays:
            raise flaw("covariance", "no R beside the C of all pairs of step and node", "one")
    if manifest.design != "space":
        alike = BufferedToeplitz if "buffer_turns" in arrays else SignedBuffers
        found = [form for form in STRATEGIES if set(form.names) & set(arrays) and form != alike]
        if len(found) > 1:
            raise flaw("strategy", "C in one form", " and ".join(form.kind for form in found))
        needed += (found[0] if found else DenseStrategy).names
        formed = manifest.design != "time" or WORKLOADS[_workload(manifest)].form is not None
        if manifest.design == "time" and (DenseStrategy in found or not formed):
            needed.append("gram")
    for name in needed:
        if name not in arrays:
            raise flaw(name, f"the array {(NOISE | STATED)[name].kind}", "nothing")


def _check_shapes(
    arrays: Mapping[str, Array], specs: Mapping[str, ArraySpec], size: Mapping[str, int]
) -> None:
    for name, spec in specs.items():
        if name not in arrays or spec.axes == ANY or not set(spec.axes) <= set(size):
            continue
        shape = tuple(size[axis] for axis in spec.axes)
        if arrays[name].shape != shape:
            raise flaw(name, f"shape {shape}", f"shape {arrays[name].shape}")


def _problem_of(arrays: Mapping[str, Array], manifest: Manifest) -> Problem:
    error = manifest.error
    for entry in error if isinstance(error, tuple) else [error] if error else []:
        # Before any array of one number a step is made.
        found, horizon = entry.horizon, manifest.horizon
        if manifest.design != "space" and found != horizon:
            raise flaw("error.horizon", f"{horizon}, the horizon", str(found))
        if found > (most := 1_000_000):
            raise flaw("error.horizon", f"at most {most} steps", str(found))
    target = manifest.privacy and manifest.privacy.target()
    fields: dict[str, Any] = {"name": manifest.name, "nodes": manifest.nodes, "privacy": target}
    random, mixing = manifest.random, arrays.get("mixing")
    if "mixing_indptr" in arrays:
        mixing = mixing_of_arrays(arrays, nodes=len(manifest.nodes), field=FIELD)
        if random is not None:
            raise flaw("random", "none beside a sparse W", "one")
    elif mixing is not None:
        fields["schedule"] = _schedule(arrays, nodes=len(mixing))
        fields["random"] = random and random.random(mixing=mixing)
    if mixing is not None:
        fields |= {"mixing": mixing, "rounds": manifest.rounds}
    fields["error"] = error_of_entries(error, mixing=mixing, rounds=manifest.rounds)
    if manifest.participation is not None or manifest.design != "space":
        scheme = participation_of(manifest.participation, horizon=manifest.horizon)
        fields["participation"] = scheme
    make = {"space": _space, "time": _time, "space-time": _space_time}[manifest.design]
    return make(arrays, manifest, fields)


def _schedule(arrays: Mapping[str, Array], *, nodes: int) -> Array | None:
    """The matrices of a schedule; their average is the W of the file."""
    found = arrays.get("schedule")
    if found is not None and (found.ndim != 3 or found.shape[1:] != (nodes, nodes)):
        raise flaw("schedule", f"shape (P, {nodes}, {nodes})", f"shape {found.shape}")
    return found


def _space(arrays: Mapping[str, Array], manifest: Manifest, fields: dict[str, Any]) -> Problem:
    if manifest.structure is not None:
        fields["structure"] = manifest.structure.in_space()
    # Over several steps nothing else was ever designed, whatever the file says of it.
    fixed, together = manifest.observers or manifest.coalitions, manifest.coalitions
    observers: Any = together and together.observers()
    limits = ("max_variance", "min_variance", "pair_factors")
    fields |= {name: arrays.get(name) for name in limits}
    if manifest.mixing_rate is not None:
        none = np.zeros(0)  # of no cap
        multipliers = {name: arrays.get(mixings_name(name), none) for name in MULTIPLIERS}
        fields["mixing_proof"] = MixingProof(norm=manifest.mixing_rate, **multipliers)
    return SpaceProblem(
        responses="fixed" if fixed else "any",
        budget=arrays["budget"],
        observers=observers or tuple(entry.observer() for entry in manifest.observers),
        **fields,
    )


def _time(arrays: Mapping[str, Array], manifest: Manifest, fields: dict[str, Any]) -> Problem:
    if manifest.structure is not None:
        fields["structure"] = manifest.structure.in_time()
    fields |= {"max_variance": arrays.get("max_variance"), "budget": arrays.get("pattern_budget")}
    workload = _workload(manifest)
    if "gram" in arrays:
        problem = TimeProblem(gram=arrays["gram"], workload=workload, **fields)
    elif "mixing" not in fields and WORKLOADS[workload].of_graph:
        raise flaw("mixing", "the array W", "nothing")
    else:
        problem = TimeProblem.of_workload(workload, **fields)
    if "workload_factor" in arrays:
        _check_factor(arrays["workload_factor"], gram=problem.gram)
    return problem


def _check_factor(factor: Array, *, gram: Array) -> None:
    """Refuse an L with another L^T L than H, but for roundings of its decomposition."""
    size = len(gram)
    if factor.ndim != 2 or factor.shape[1] != size or len(factor) > size:
        got = f"shape {factor.shape}"
        raise flaw("workload_factor", f"shape (r, {size}), r at most {size}", got)
    with np.errstate(all="ignore"):
        off = float(np.abs(factor.T @ factor - gram).max())
    if not off <= 8 * settings.rank_tolerance(size) * float(np.abs(gram).sum(axis=1).max()):
        got = f"entries that differ by up to {off:.3g}"
        raise flaw("workload_factor", "L with L^T L = H, the array gram", got)


def _workload(manifest: Manifest) -> str:
    if manifest.workload in WORKLOADS:
        return str(manifest.workload)
    *others, last = WORKLOADS
    raise flaw("workload", f"{', '.join(others)} or {last}", str(manifest.workload))


def _space_time(arrays: Mapping[str, Array], manifest: Manifest, fields: dict[str, Any]) -> Problem:
    structure = manifest.structure
    if structure is None or structure.joint is None:
        raise flaw("structure.joint", f"one of {', '.join(JOINTS)}", "nothing")
    scheme = fields.pop("participation")
    return SpaceTimeProblem(
        participation=require_fixed_epoch(
            scheme, field=f"{FIELD}.participation", expected="epochs and separation"
        ),
        budget=arrays["budget"],
        max_variance=arrays.get("max_variance"),
        time=structure.in_time(),
        space=structure.in_space(),
        joint=structure.joint,
        **fields,
    )
