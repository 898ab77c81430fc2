"""Store a graph in parts, solve for its noise, verify a design of it: what people call."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from noisedesign.base import checks as _checks
from noisedesign.base.alone import alone_with
from noisedesign.base.atomic import made_folder
from noisedesign.base.checks import InputError
from noisedesign.base.shown import Shown
from noisedesign.distributed import design as designs
from noisedesign.distributed.graph import Folder, folder_at, store_graph
from noisedesign.distributed.mail import LONGEST_SILENCE, Array
from noisedesign.distributed.work import DIGITS, Asked, Tell
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.calibration import calibration_of
from noisedesign.problem.problem import ANY_SPACE, Problem, SpaceProblem, problem_of

Cut = Literal["given", "rcm", "metis"]
CUTS: tuple[Cut, ...] = ("given", "rcm", "metis")
CHECKPOINT = "checkpoint"
"""The folder, in that of a design, of a solve that has not ended."""
GAP = 0.05
"""The gap that a solve is to reach, unless asked for another: that of one process."""
TOLERANCE = 1e-9
"""Relative, of a number that is computed again by parts on other machines."""


@dataclass(frozen=True, kw_only=True, repr=False)
class DesignInParts(Shown):
    """A design of which every part has the rows of its own nodes.

    Attributes:
        path: the folder that it is in.
        status: "statistical", or "inaccurate" where the gap is above the one asked for.
        objective: tr(H R), an upper bound, squared noise at the stated budgets.
        lower_bound: on the objective of noise of every structure.
        sensitivity_squared: largest squared sensitivity over its budget; at most 1.
        relative_to_ldp: objective over that of independent noise.
        confidence: probability, over random vectors, that objective and bound hold.
        uncertainty: how far the objective may be, relative, from what other vectors give.
        noise_stddev: factor on the noise that meets the privacy target; 1 without one.
        epsilon: of the target, or None.
        delta: of the target, or None.
        nodes: n.
        sent: messages and bytes of all parts, by what they are about.
    """

    path: Path
    status: str
    objective: float
    lower_bound: float
    sensitivity_squared: float
    relative_to_ldp: float
    confidence: float
    uncertainty: float
    noise_stddev: float
    epsilon: float | None
    delta: float | None
    nodes: int
    sent: Mapping[str, int]

    @property
    def gap(self) -> float:
        """Relative duality gap, objective / lower_bound - 1."""
        return self.objective / self.lower_bound - 1 if self.lower_bound > 0 else np.inf


@dataclass(frozen=True, kw_only=True, repr=False)
class VerifiedParts(Shown):
    """The verdicts on the claims of a design in parts.

    Attributes:
        checks: by name of a claim, whether it holds.
        found: by name, the numbers computed again, of vectors of their own.
    """

    checks: Mapping[str, bool]
    found: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """Whether every claim holds."""
        return all(self.checks.values())


def store(
    problem: Problem | Any, path: str | Path, *, parts: int = 2, cut: Cut = "given"
) -> Folder:
    """Write the graph of a problem as a folder of Parquet files, one a part.

    Args:
        problem: a :class:`SpaceProblem` of a symmetric W, or a loaded file of one, without limits,
            of the error of one step; its budgets and its privacy target are stored too.
        path: of the folder, which is made where there is none.
        parts: how many.
        cut: which nodes are a part: "given", runs of the order of the nodes with the same number of
            edges; "rcm", the same in reverse Cuthill-McKee order, for graphs in the plane; "metis",
            by the package pymetis, where neighbours lie together.

    Returns:
        The folder.

    Raises:
        InputError: a problem of another kind, naming what is not covered; more parts than nodes;
            no pyarrow, or pymetis; a folder of other files.
    """
    given = problem_of(problem, sparse=True)
    _check_covered(given)
    whole: Any = given.mixing
    mixing: Any = sparse.csr_array(whole)
    if (mixing != mixing.T).nnz:
        expected = "a symmetric W: a product with its transpose takes its columns"
        remedy = 'Weights "metropolis-hastings" and "max-degree" are symmetric.'
        raise InputError("mixing", expected=expected, got="another", remedy=remedy)
    parts = _checks.positive_int(parts, field="parts")
    if parts > mixing.shape[0]:
        raise InputError("parts", expected="a node a part, or more", got=f"{parts} parts")
    labels = _labels(mixing, parts, _checks.one_of(cut, field="cut", allowed=CUTS))
    return store_graph(mixing, path, labels=labels, budget=given.budget, privacy=given.privacy)


def _check_covered(problem: Any) -> None:
    """Refuse by name what a problem may ask for, and graphs in parts do not have."""
    if problem.axes != "space":
        raise InputError("problem", expected="one of noise across nodes", got=problem.axes)
    horizon = problem.horizon
    asked = {
        "max_variance": problem.max_variance is not None,
        "min_variance": problem.min_variance is not None,
        "structure": problem.structure != ANY_SPACE and problem.structure.kind != POLYNOMIAL,
        "participation": problem.participation is not None,
        "observers": len(problem.observers) > 0,
        "random": problem.random is not None,
        "rounds": problem.rounds != 1,
        "schedule": problem.schedule is not None,
        "error": problem.error is not None and not (horizon == 1 and problem.error.plain),
    }
    for name, is_asked in asked.items():
        if is_asked:
            expected = "none: parts have polynomial noise of the error of one step, every step's"
            remedy = "Leave it out, or solve it in one process."
            raise InputError(name, expected=expected, got=f"one of {name}", remedy=remedy)


POLYNOMIAL = "polynomial"


def _labels(mixing: Any, parts: int, cut: str) -> Array:
    """The part of every node; every part has one."""
    n = mixing.shape[0]
    if cut == "metis":
        try:
            import pymetis
        except ImportError as error:
            expected, remedy = "the package pymetis", "pip install pymetis, or another cut."
            raise InputError("cut", expected=expected, got="none", remedy=remedy) from error
        rows = mixing.tocsr()
        _, found = pymetis.part_graph(parts, xadj=rows.indptr, adjncy=rows.indices)
        labels = np.asarray(found)
        if len(np.unique(labels)) == parts:
            return labels
        cut = "given"  # of a graph so small that a part has nothing
    order = reverse_cuthill_mckee(mixing.tocsr(), symmetric_mode=True) if cut == "rcm" else None
    order = np.arange(n) if order is None else order
    share = np.cumsum(np.diff(mixing.tocsr().indptr)[order]) / mixing.nnz
    # As many entries a part; of a node of most of them, a part may have no other.
    ends = np.searchsorted(share, np.arange(1, parts) / parts)
    ends = np.clip(np.maximum.accumulate(ends + 1 - np.arange(1, parts)), 0, n - parts)
    label = np.searchsorted(ends + np.arange(1, parts), np.arange(n), side="right")
    found = np.empty(n, dtype=np.int64)
    found[order] = label
    return found


def solve(
    graph: str | Path,
    output: str | Path,
    *,
    cluster: str | None = None,
    gap: float | None = None,
    silence: float = LONGEST_SILENCE,
    tell: Tell | None = None,
) -> DesignInParts:
    """Design the noise of a graph in parts, and judge it.

    What was found is kept in ``output``/checkpoint while a solve runs: the same call goes on from
    there if it ended early, and the answer is the same to the last bit.

    Args:
        graph: the folder that :func:`store`, or another program, wrote. Workers read it by the same
            path.
        output: the folder to write the design into, which workers reach by the same path.
        cluster: the address of a Dask scheduler with a worker a part, or more; None: parts are
            threads of this process, which then holds all of them.
        gap: to reach, relative; 0.05 unless asked for less or more.
        silence: seconds that a part waits for another before its call ends with an error.
        tell: called with each stage of the work, in words.

    Returns:
        The design.

    Raises:
        InputError: a part that is damaged or does not fit the others; a graph that is not
            connected, of too few nodes; too few workers, or no scheduler.
        OSError: a worker was lost, or a file could not be written.
    """
    gap = GAP if gap is None else _checks.real(gap, field="gap", low=0, high=1)
    silence = _checks.real(silence, field="silence", low=0)
    folder = folder_at(graph)
    _calibration(folder.privacy, 1.0)  # a target that lacks something is refused before the work
    design = made_folder(output).resolve()
    if any(not _is_ours(one.name) for one in design.iterdir()):
        expected = "an empty folder, or that of a design in parts"
        raise InputError("output", expected=expected, got=f"{design}, with other files")
    asked = Asked(graph=folder.path.resolve(), design=design, checkpoint=design / CHECKPOINT)
    with alone_with(design, field="output", what="folder"):
        found = _run(asked, folder, cluster=cluster, silence=silence, tell=tell)
        made = _written(found, folder, design, gap)
        _forget(design / CHECKPOINT)
    return made


def _is_ours(name: str) -> bool:
    return name in (CHECKPOINT, designs.MANIFEST) or bool(designs.FILE.fullmatch(name))


def _forget(checkpoint: Path) -> None:
    """Remove checkpoints, of former graphs too, and nothing else that somebody put beside them."""
    for problem in checkpoint.glob("[0-9a-f]" * DIGITS):
        shutil.rmtree(problem, ignore_errors=True)
    with suppress(OSError):
        checkpoint.rmdir()


def _written(
    found: list[dict[str, Any]], folder: Folder, design: Path, gap: float
) -> DesignInParts:
    """Write what is known of all parts beside their files; and return it."""
    first = found[0]
    calibrated = _calibration(folder.privacy, max(one["graph"]["largest_budget"] for one in found))
    numbers = {
        "objective": first["objective"],
        "lower_bound": first["lower_bound"],
        "sensitivity_squared": first["sensitivity_squared"],
        "relative_to_ldp": first["objective"] / first["independent_error"],
        "confidence": first["confidence"],
        "uncertainty": first["uncertainty"],
    }
    made = DesignInParts(
        path=design,
        status=designs.status_of(first["objective"], first["lower_bound"], gap),
        **numbers,
        noise_stddev=calibrated.noise_stddev,
        epsilon=calibrated.epsilon,
        delta=calibrated.delta,
        nodes=folder.nodes,
        sent=sent_by(found),
    )
    if not made.sensitivity_squared <= 1:
        raise InputError(
            "parts",
            expected="noise within its budgets",
            got=f"{made.sensitivity_squared:g} of one",
            remedy="Rounding cost more than it should: report this graph.",
        )
    designs.write_manifest(
        design,
        {
            "problem": first["problem"],
            "status": made.status,
            "gap": gap,
            "claims": numbers,
            "noise_stddev": calibrated.noise_stddev,
            "privacy": None if folder.privacy is None else asdict(folder.privacy),
            "noise": first["noise"],
            "files": [one["file"] for one in found],
        },
    )
    return made


def _calibration(target: PrivacyTarget | None, budget: float) -> Any:
    """The scale of noise whose largest budget that is: it depends on no W."""
    two = np.array([[0.75, 0.25], [0.25, 0.75]])
    return calibration_of(SpaceProblem(mixing=two, budget=budget, privacy=target))


def verify(
    design: str | Path,
    graph: str | Path,
    *,
    cluster: str | None = None,
    silence: float = LONGEST_SILENCE,
    tell: Tell | None = None,
) -> VerifiedParts:
    """Compute again what a design in parts claims, each part from its own files.

    Digests, budgets (by other sums than the search's), error and bound (by other vectors), and what
    follows from these; nothing that the solve wrote is believed.

    Args:
        design: its folder.
        graph: the folder of the graph that it was made for.
        cluster: as for :func:`solve`.
        silence: as for :func:`solve`.
        tell: as for :func:`solve`.

    Returns:
        What holds, and the numbers that were found.

    Raises:
        InputError: a damaged part, a design of another graph; as for :func:`solve`.
        OSError: a worker was lost.
    """
    silence = _checks.real(silence, field="silence", low=0)
    folder, stated = folder_at(graph), designs.manifest_at(design)
    asked = Asked(
        graph=folder.path.resolve(),
        design=Path(design).resolve(),
        verify=True,
        seed=secrets.randbits(63),
    )
    found = _run(asked, folder, cluster=cluster, silence=silence, tell=tell)
    first, claims = found[0], stated["claims"]
    calibrated = _calibration(folder.privacy, max(one["graph"]["largest_budget"] for one in found))
    target = None if folder.privacy is None else asdict(folder.privacy)
    checks = {
        "budgets": first["sensitivity_squared"] <= 1,
        "sensitivity": _close(claims["sensitivity_squared"], first["sensitivity_squared"]),
        # What is claimed is an end of what vectors tell; others may not contradict it.
        "objective": claims["objective"] >= first["objective_at_least"],
        "lower bound": claims["lower_bound"] <= first["bound_at_most"],
        "uncertainty": claims["objective"] * (1 - claims["uncertainty"]) <= first["objective"],
        "confidence": claims["confidence"] <= first["confidence"],
        "relative_to_ldp": _close(
            claims["relative_to_ldp"], claims["objective"] / first["independent_error"]
        ),
        "status": stated.get("status")
        == designs.status_of(claims["objective"], claims["lower_bound"], stated["gap"]),
        "privacy": stated.get("privacy") == target,
        "noise_stddev": _close(stated["noise_stddev"], calibrated.noise_stddev),
    }
    return VerifiedParts(checks=checks, found={key: first[key] for key in claims if key in first})


def _close(claimed: float, found: float) -> bool:
    return abs(claimed - found) <= TOLERANCE * abs(found)


def sent_by(found: list[dict[str, Any]]) -> dict[str, int]:
    """Messages and bytes of all parts."""
    total: dict[str, int] = {}
    for one in found:
        for about, count in one["sent"].items():
            total[about] = total.get(about, 0) + int(count)
    return dict(sorted(total.items()))


def _run(
    asked: Asked, folder: Folder, *, cluster: str | None, silence: float, tell: Tell | None
) -> list[dict[str, Any]]:
    told: Callable[[str], None] = tell or (lambda _: None)
    if cluster is None:
        from noisedesign.distributed.here import run_here

        return run_here(asked, parts=folder.parts, silence=silence, tell=told)
    from noisedesign.distributed.cluster import run_on_cluster

    return run_on_cluster(asked, parts=folder.parts, address=cluster, silence=silence, tell=told)
