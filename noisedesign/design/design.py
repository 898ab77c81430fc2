"""A finished noise design: the matrix, what is certified of it, and where it came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any

from noisedesign.base.checks import Array, InputError, describe
from noisedesign.base.linalg import eigenvalues
from noisedesign.base.monitor import Bounds
from noisedesign.base.nodes import Node
from noisedesign.base.shown import Shown, words
from noisedesign.certify.certificate import Certificate
from noisedesign.families.family import Seeded, family_of
from noisedesign.forms import Noise, SparseCovariance, Strategy
from noisedesign.forms.node_plan import node_plan
from noisedesign.noise.plan import Claim, Plan
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.problem.calibration import calibration_of, claim_of
from noisedesign.problem.problem import Problem, theorem_of
from noisedesign.problem.unbounded import UnboundedProblem

AGAINST_OBSERVERS = "observers"  # the ``trust`` of noise against chosen observers
PROTECTS = {  # the meaning of each ``trust``
    "local": "every message",
    AGAINST_OBSERVERS: "what the chosen observers see",
    "central": "the released average only",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Provenance(Shown):
    """The making of a design.

    Attributes:
        method: "optimal", or the baseline that it is.
        backend: who solved it.
        status: as of a :class:`noisedesign.Solution`.
        build_seconds: to state the problem.
        solve_seconds: to solve it.
        evaluations: of the objective, or iterations.
        versions: of packages, by name.
        history: bounds after each iteration.
    """

    method: str
    backend: str
    status: str
    build_seconds: float = 0.0
    solve_seconds: float = 0.0
    evaluations: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    history: tuple[Bounds, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Design(Shown):
    """A certified noise design.

    Attributes:
        problem: what was asked.
        noise: what is exported. In space the covariance R, shape (n, n), at the stated budgets; in
            time the strategy C, shape (T, T), lower triangular, of unit squared sensitivity; in
            space-time both, for noise of covariance (C^T C)^-1 x R, or C alone, shape (nT, nT), in
            time-major order at the stated budgets.
        certificate: what is certified of it.
        provenance: how it was made.
        proof: by name, the multipliers that prove the lower bound, and what else the family of the
            problem keeps of its noise. Baselines have none of their own.
        relaxed_proof: the same of the problem without its structure, for the bound on all designs.
        trust: "local" where the noise protects every message, "observers" where it protects from
            the observers of the problem and nobody else, "central" where it only protects the
            average a trusted server releases.
        local: the noise is the best a search found, which may be a local optimum.

    Examples:
        Prefix sums of two steps: C^T C = [[1, x], [x, 1]] with x^2 - 3 x + 1 = 0.

        >>> import noisedesign as nd
        >>> scheme = nd.participation.single(2)
        >>> design = nd.solve(nd.TimeProblem.prefix(participation=scheme), gap=1e-9).design
        >>> x = (3 - 5**0.5) / 2
        >>> print(f"{x:.4f}")
        0.3820
        >>> (design.strategy.T @ design.strategy).round(4).tolist()
        [[1.0, 0.382], [0.382, 1.0]]
    """

    problem: Problem
    noise: Noise
    certificate: Certificate
    provenance: Provenance
    proof: Mapping[str, Array] = field(default_factory=dict)
    relaxed_proof: Mapping[str, Array] = field(default_factory=dict)
    trust: str = "local"
    local: bool = False

    def __post_init__(self) -> None:
        use, mixing = self.problem.use, self.problem.mixing
        steps = None if use is None else use.horizon
        nodes = None if mixing is None else int(mixing.shape[-1])
        if (self.noise.steps, self.noise.nodes) != (steps, nodes):
            object.__setattr__(self, "noise", replace(self.noise, steps=steps, nodes=nodes))

    @property
    def axes(self) -> str:
        """ "space", "time" or "space-time"."""
        return self.problem.axes

    @property
    def matrix(self) -> Array:
        """R of a spatial design, else C."""
        return self.covariance if self.axes == "space" else self.strategy

    @property
    def size(self) -> int:
        """Rows of :attr:`matrix`, told without forming it."""
        found = self.noise.nodes if self.noise.strategy is None else self.noise.strategy.horizon
        assert found is not None
        return found

    @property
    def covariance(self) -> Array:
        """R, shape (n, n), squared noise units.

        Raises:
            InputError: a design that has none, or too many nodes for one.
        """
        if self.noise.space is None:
            raise InputError("design", expected="a space design", got=f"a {self.axes} design")
        return self.noise.covariance

    @property
    def strategy(self) -> Array:
        """C, lower triangular, shape (T, T); (nT, nT) of a full space-time design.

        Raises:
            InputError: a spatial design.
        """
        if self.noise.strategy is None:
            raise InputError("design", expected="a time design", got="a space design")
        return self.noise.dense_strategy

    @cached_property
    def noising_matrix(self) -> Array:
        """C^-1, lower triangular.

        Noise of step t is row t times white noise.

        Raises:
            InputError: a spatial design.
        """
        return self.strategy_form.dense_noising()

    @property
    def strategy_form(self) -> Strategy:
        """C by the numbers that determine it.

        Raises:
            InputError: a spatial design.
        """
        if self.noise.strategy is None:
            raise InputError("design", expected="a time design", got="a space design")
        return self.noise.strategy

    @cached_property
    def ldp_objective(self) -> float:
        """Objective of independent noise at the same budgets, squared noise."""
        return family_of(self.problem).independent_error(self.problem)

    @property
    def relative_to_ldp(self) -> float:
        """Objective over that of independent noise at the same budgets."""
        return self.objective / self.ldp_objective

    @cached_property
    def independent_variance(self) -> float | None:
        """Largest s with R - s I positive semidefinite, squared noise, at the stated budgets.

        It is sigma_mix^2 of Whisper D-SGD, where R = sigma_mix^2 I + R_cor: the part of the noise
        that every node could draw by itself, which is the smallest eigenvalue of R. No weighted sum
        of the nodes' noise, of weights whose squares sum to 1, has less variance. None where there
        is no R alone, or no array of it."""
        if self.axes != "space" or isinstance(self.noise.space, SparseCovariance):
            return None
        return max(0.0, float(eigenvalues(self.covariance)[0]))

    def dense(self) -> Design:
        """The same design with W as an array.

        Returns:
            Itself, where W is one.

        Raises:
            InputError: naming ``mixing``: it has too many nodes for that.
        """
        if not self.problem.sparse:
            return self
        return replace(self, problem=self.problem.dense())

    def node_plan(self, node: Node | None = None, *, batch_size: int | None = None) -> Plan:
        """The facts one node needs to draw its noise, scaled to the privacy target.

        Args:
            node: its name, a text, or its row, zero-based; needed where nodes differ.
            batch_size: what the trainer divides sums of gradients by, if it does: the noise is
                divided by it too.

        Returns:
            The plan, which :func:`noisedesign.noise.noise` draws from.

        Raises:
            InputError: no target; no such node; noise that does not protect every message, or is
                not feasible.
        """
        noise, problem = self.noise, self.problem
        if self._seeds is not None:
            noise = replace(noise, space=self._seeds)
        return node_plan(
            noise.scaled(self.claim.noise_stddev),
            self.claim,
            node=node,
            names=problem.nodes,
            mixing=problem.mixing if problem.always_alike else None,
            rounds=problem.rounds,
            batch_size=batch_size,
        )

    @cached_property
    def claim(self) -> Claim:
        """The protection by its noise once that is scaled to the privacy target.

        Raises:
            InputError: no target; noise that does not protect every message, or is not feasible.
        """
        if self.trust != "local" or not self.certificate.feasible:
            got = "one that is not feasible" if self.trust == "local" else f"trust {self.trust!r}"
            raise InputError("design", expected="one that protects every message", got=got)
        found = claim_of(calibration_of(self.problem), trust=self.trust)
        if found.mu is not None:
            return found
        account = self.certificate.account or calibration_of(self.problem).account
        confidence = None if account is None else account.confidence
        return replace(found, mu=self.fixed_mu, confidence=confidence)

    @property
    def fixed_mu(self) -> float | None:
        """GDP parameter of its noise at the target before an adversary who chooses who takes part
        when; not squared. It says what random participation is worth. None without a target."""
        problem = self.problem
        found = calibration_of(problem)
        if problem.privacy is None or problem.use is None or not problem.use.random:
            return found.mu
        squared = problem.sensitivity**2
        if self.noise.strategy is not None:
            strategy = self.noise.dense_strategy
            squared *= squared_sensitivity(strategy.T @ strategy, problem.use.fixed).squared
        return found.step_sensitivity * math.sqrt(squared) / found.noise_stddev

    @cached_property
    def _seeds(self) -> SeedPlan | None:
        """The seed plan, where the noise is made of shared seeds."""
        if self.noise.full or self.noise.space is None:
            return None
        family = family_of(self.problem)
        if not isinstance(family, Seeded):
            return None
        return family.seeds(family.program(self.problem), self.noise, self.proof)

    def _title(self) -> str:
        return f"Design of {self.problem.name!r}"

    def _facts(self) -> dict[str, object]:
        sizes = []
        if isinstance(self.noise.space, SparseCovariance):
            sizes.append(f"R of {self.noise.space.nodes} nodes, {self.noise.space.kind}")
        elif self.noise.space is not None:
            sizes.append(f"R {words(self.covariance)}")
        if self.noise.strategy is not None:
            size = self.noise.strategy.horizon  # C itself need not fit into memory
            sizes.append(f"C {size} x {size} matrix")
        return {
            "kind": f"{self.axes}: {', '.join(sizes)}",
            "method": self.provenance.method,
            "backend": self.provenance.backend,
            "objective": self.objective,
            "lower bound": self.lower_bound,
            "gap": self.gap,
            "confidence": self.certificate.confidence,
            "over LDP": self.relative_to_ldp,
            "feasible": self.certificate.feasible,
            "protects": PROTECTS.get(self.trust),
            "theorem": theorem_of(self.problem).number,
        }

    @cached_property
    def prices(self) -> Mapping[str, float]:
        """The price of every squared budget by its name, which is the percentage by which the lower
        bound falls if that budget is raised by 1 %, everything else as it was.

        Of nodes by their names; over time of every pattern, the steps that one record takes part
        in. They add up to 1 without caps or floors. Strategies that are constant along diagonals,
        or have no negative entries, have one budget: its price is that of the patterns which use it
        up, together, and of their own error; under random participation that of every record. Of
        another bound on noise of every structure they are those of that bound. Empty where
        :attr:`unpriced` says why."""
        if self.trust == "central":
            return {}
        return family_of(self.problem).prices(self.problem, self.noise, self.proof)

    @property
    def unpriced(self) -> str:
        """Why there are no prices, a sentence; empty where there are."""
        if self.prices:
            return ""
        if self.trust == "central":
            return "Noise that protects the released average alone keeps no budgets of others."
        return (
            "No multipliers of the budgets are kept, as of no optimum: their prices are not known."
        )

    @property
    def objective(self) -> float:
        """tr(H X^-1) of the exported matrix, squared noise, at the stated budgets."""
        return self.certificate.objective

    @property
    def lower_bound(self) -> float:
        """No feasible design has a smaller objective."""
        return self.certificate.lower_bound

    @property
    def gap(self) -> float:
        """Relative duality gap, objective / lower_bound - 1."""
        return self.certificate.gap


def seed_plan_of(design: Design) -> SeedPlan:
    """Tell who shares which seed of a design, or raise InputError where it is not made of seeds."""
    if design.noise.space is None and not design.noise.full:
        raise InputError("design", expected="a space or space-time design", got="a time design")
    if (plan := design._seeds) is None:
        expected = "edge-local, hops, neighbourhood, clusters, decor or independent"
        got = "a design that is not made of shared seeds"
        raise InputError("structure.space", expected=expected, got=got)
    return plan


def fixed_mixing(design: Design, *, once: bool = True) -> Array:
    """W, (n, n), of a design whose models mix by one W, ``once`` a step; else InputError."""
    problem = design.problem
    if problem.mixing is None:
        got = "no graph"
    elif problem.random is not None:
        got = "a W that is drawn at every step"
    elif problem.schedule is not None:
        got = f"a schedule of {len(problem.schedule)} W"
    elif once and problem.rounds > 1:
        got = f"{problem.rounds} gossip rounds a step"
    else:
        return problem.mixing
    expected = "one of a graph with a fixed W"
    if once:
        expected += ", of one gossip round a step"
    raise InputError("design", expected=expected, got=got)


def design_of(value: Any, *, sparse: bool = False) -> Design:
    """Return a design itself, or that of a solution or file; W dense unless ``sparse``."""
    for found in (value, getattr(value, "design", None)):
        if isinstance(found, Design):
            return found if sparse else found.dense()
    remedy = ""
    if isinstance(value, (str, PathLike)):
        remedy = "Give load(path)."
    elif isinstance(value, Problem):
        remedy = "Give solve(problem).design."
    expected, got = "a design, or a solution or loaded file that has one", describe(value)
    for one in (value, getattr(value, "design", None)):
        if isinstance(getattr(one, "problem", None), UnboundedProblem):
            got = "a design of a run without an end"
            remedy = "Of it there are verify, deploy, noise and privacy_after."
    raise InputError("design", expected=expected, got=got, remedy=remedy)
