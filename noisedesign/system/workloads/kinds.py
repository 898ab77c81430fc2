"""Kinds of workloads of temporal problems: how the T x T Gram matrix H comes about.

H = sum over nodes of A_i^T A_i is all a design needs of the workload A. A new kind is a
:class:`WorkloadKind` and a line of :data:`WORKLOADS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign.system.random_mixing import RandomMixing
from noisedesign.system.workloads.objective import Objective
from noisedesign.system.workloads.workload import Workload


@dataclass(frozen=True, kw_only=True)
class WorkloadKind:
    """How H is formed, and from what.

    Attributes:
        form: H, shape (T, T), from the ``horizon`` T and, for a kind ``of_graph``, the ``mixing``
            W, shape (n, n), the ``objective`` and the ``random`` mixing, each of them or None.
            None: H itself is given, and stored. Otherwise it can be formed again.
        definition: what H is, in words.
        of_graph: whether it is the error of models on a graph.
        run: whether running the models shows that error; otherwise it is |L z|^2, H = L^T L.
    """

    form: Callable[..., Array] | None
    definition: str
    of_graph: bool = False
    run: bool = False

    def gram(
        self,
        *,
        horizon: int,
        mixing: Array | None = None,
        objective: Objective | None = None,
        random: RandomMixing | None = None,
    ) -> Array:
        """H of a kind that forms it."""
        assert self.form is not None
        if not self.of_graph:
            return self.form(horizon=horizon)
        return self.form(horizon=horizon, mixing=mixing, objective=objective, random=random)


def prefix_gram(*, horizon: int) -> Array:
    """Gram matrix of the prefix-sum workload, shape (T, T): H_ss' = T + 1 - max(s, s').

    A is lower triangular with ones (Mafalda-SGD, equation (2)); steps are counted from 1.
    """
    steps = np.arange(_checks.positive_int(horizon, field="horizon"))
    return (horizon - np.maximum.outer(steps, steps)).astype(np.float64)


def decentralized_gram(
    mixing: Any,
    *,
    horizon: int,
    objective: Objective | None = None,
    random: RandomMixing | None = None,
) -> Array:
    """Gram matrix of all iterates of all nodes under gossip, shape (T, T).

    With theta_{t+1} = W (theta_t + z_t) and every node drawing z from the same temporal
    covariance, the summed squared error of all iterates is tr(H cov(z)) for

        H_ss' = sum_{t >= max(s, s')} tr( (W^(t-s+1))^T W^(t-s'+1) ).

    Equals the Gram matrix of Mafalda-SGD, Lemma 10, equation (10).

    Args:
        mixing: W, shape (n, n), symmetric or not.
        horizon: T.
        objective: which error counts, by default that of all iterates.
        random: from which distribution W is drawn at every step, if from any.

    Returns:
        H, symmetric positive semidefinite, in squared error per squared noise.

    Raises:
        InputError: W is not a finite square float64 matrix, or horizon < 1.
    """
    error = Workload.of(mixing, horizon=horizon, objective=objective, random=random)
    return error.time_gram()


WORKLOADS: dict[str, WorkloadKind] = {
    "decentralized": WorkloadKind(
        form=decentralized_gram, definition="closed form from W", of_graph=True, run=True
    ),
    "prefix": WorkloadKind(form=prefix_gram, definition="prefix sums", run=True),
    "gram": WorkloadKind(form=None, definition="no negative eigenvalue"),
}
"""Every kind by the name it has in files: the one place that lists them."""
