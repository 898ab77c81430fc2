"""The account of one observer: of an algorithm, or of a design as it would be run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError, describe
from noisedesign.base.nodes import Node
from noisedesign.base.shown import Listing
from noisedesign.design.design import design_of
from noisedesign.privacy import exposure
from noisedesign.privacy.exposure import Exposure
from noisedesign.privacy.runs import Responses
from noisedesign.privacy.target import ADJACENCIES, DEFAULT_ADJACENCY, DEFAULT_DELTA
from noisedesign.privacy.views import Observer
from noisedesign.system.participation import Participation
from noisedesign.tasks.account.table import setting_of


def account(
    algorithm: Any,
    observer: Observer | None = None,
    *,
    participation: Participation | None = None,
    steps: int | None = None,
    noise_multiplier: Any = None,
    adjacency: str | None = None,
    delta: float | Literal["target"] | None = "target",
    victims: Sequence[Node] | None = None,
    responses: str | Responses = "any",
    progress: Callable[[int, int], None] | None = None,
    worst: bool = False,
) -> Listing[Exposure]:
    """State what ``observer`` learns about every victim when ``algorithm``, or a design, runs.

    Who sees all that enters the models faces the Gaussian mechanism :math:`A_u^T (B B^T)^+ A_u`
    over vector gradients of the worst pattern (docs/runs.md, theorem 1). Who sees a part learns at
    most what a reader of all messages does, and nothing where nothing of the record can have
    arrived (theorem 2). Less holds for a declared class of losses (theorem 4), and for
    ``responses="fixed"`` (theorem 3; Mafalda-SGD, Theorem 7; Koskela and Kulkarni, Lemma 6), which
    no training keeps to.

    Where steps are drawn at random, epsilon is that of a mixture (Choquette-Choo et al. 2024, "Near
    exact privacy amplification for matrix mechanisms"), never above that of known steps. It holds
    while nobody but the node knows which were drawn, for one run, and for sums of gradients over a
    fixed number.

    Args:
        algorithm: what the nodes send, of :mod:`noisedesign.privacy.views`; or a design, a solution
            or what was loaded of a design, scaled to its privacy target where it has one.
        observer: who looks, of :mod:`noisedesign.observers`; must be stated.
        participation: at which steps one record takes part; its horizon is the algorithm's. None
            for a design, which has its own.
        steps: of a design in space without a participation: how many steps its noise is used for,
            a record in every one of them; else None.
        noise_multiplier: factor on the standard deviation of all noise, over the clip, by default
            1, and None for a design, which has its own: one number, or one a node, a list in their
            order or a mapping from their names, for which ``sensitivity_squared`` then is.
        adjacency: "replace" (a step changes by up to twice the clip), "zero-out" or "add-remove"
            (by the clip). By default that of
            the target of a design, else "replace".
        delta: for which epsilon is asked, in (0, 1); None leaves it out. By default that of the
            target of a design, else 1e-6.
        victims: names or rows of nodes to account for; default: all outside the coalition.
        responses: how gradients answer to models, one of "any", "convex", "smooth" and "fixed", or
            a :class:`noisedesign.privacy.runs.Responses` that declares more.
        progress: called with victims done and in total.
        worst: whether victims who cannot have the largest epsilon are left with that of known
            steps, an upper bound, where steps are drawn.

    Returns:
        An :class:`Exposure` of every victim, in the order of the nodes.

    Raises:
        InputError: no observer; no participation of an algorithm; a participation or a multiplier
            beside a design, or ``steps`` where they are known; another horizon, a victim that is in
            the coalition or no node, noise_multiplier not positive, another adjacency, delta
            outside (0, 1), nodes the graph does not have, another word for ``responses``; steps
            drawn at random and a strategy with negative entries, or delta out of reach.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.privacy import views
        >>> algorithm = views.dp_d_sgd(mixing=[[0.5, 0.5], [0.5, 0.5]], horizon=1)
        >>> once = nd.participation.single(1)
        >>> use = {"participation": once, "noise_multiplier": 2.0, "delta": 1e-5}
        >>> outside = nd.observers.ldp()
        >>> found = nd.account(algorithm, outside, **use)  # 2 clips, under noise of as much
        >>> [(e.node, round(e.mu, 4), round(e.epsilon, 2)) for e in found]
        [('0', 1.0, 4.38), ('1', 1.0, 4.38)]

        A design meets its target before a reader of all messages.

        >>> target = nd.PrivacyTarget(epsilon=2.0, steps=10)
        >>> graph = nd.build_graph("florentine")
        >>> design = nd.solve(nd.SpaceProblem.from_graph(graph, privacy=target)).design
        >>> found = nd.account(design, nd.observers.ldp(), victims=["Medici"])
        >>> [(e.node, round(e.epsilon, 4)) for e in found]
        [('Medici', 2.0)]
    """
    if observer is None:
        expected, remedy = "who looks", "Say nd.observers.ldp() for a reader of all messages."
        raise InputError("observer", expected=expected, got="nothing", remedy=remedy)
    how: dict[str, Any] = {"victims": victims, "progress": progress, "worst": worst}
    of_target = isinstance(delta, str) and delta == "target"
    if adjacency is not None:
        _checks.one_of(adjacency, field="adjacency", allowed=ADJACENCIES)
    designs = (algorithm, getattr(algorithm, "design", None))
    if not any(hasattr(one, "problem") for one in designs):
        if steps is not None:
            expected = "none for an algorithm, whose participation has them"
            raise InputError("steps", expected=expected, got=str(steps))
        how["noise_multiplier"] = 1.0 if noise_multiplier is None else noise_multiplier
        how["adjacency"] = DEFAULT_ADJACENCY if adjacency is None else adjacency
        how["delta"] = DEFAULT_DELTA if of_target else delta
        how |= {"participation": participation, "responses": responses}
        return exposure.account(algorithm, observer, **how)
    own = {"participation": participation, "noise_multiplier": noise_multiplier}
    for field, given in own.items():
        if given is not None:
            expected = "none for a design, which has its own"
            remedy = "A design in space without a participation takes steps=T."
            raise InputError(field, expected=expected, got=describe(given), remedy=remedy)
    asked: Any = None if of_target else delta
    setting = setting_of(
        design_of(algorithm), steps=steps, delta=asked, adjacency=adjacency, responses=responses
    )
    if not of_target:  # None leaves epsilon out
        setting = replace(setting, delta=asked)
    return setting.before(observer, **how)
