"""pfl-research: designed noise on the sum of a cohort's clipped updates, as a postprocessor.

It protects users: a user is in the cohorts of the iterations that the design says, and no others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pfl.common_types import Saveable
from pfl.exception import CheckpointNotFoundError
from pfl.internal.ops.selector import get_default_framework_module as get_ops
from pfl.metrics import Metrics, Weighted
from pfl.privacy import CentralPrivacyMechanism, NormClipping, PrivacyMetricName
from pfl.stats import TrainingStatistics

from noisedesign.adapters.run import Run
from noisedesign.base import atomic
from noisedesign.base.checks import InputError
from noisedesign.noise.source import NodeNoise

_STATE = "noisedesign.json"


class _Clipping(NormClipping):
    def add_noise(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def _arrays(stats: TrainingStatistics) -> tuple[Any, list[np.ndarray]]:
    """The metadata of statistics, and copies of their weights."""
    metadata, weights = stats.get_weights()
    return metadata, [np.array(get_ops().to_numpy(weight), order="C") for weight in weights]


class DesignedMechanism(CentralPrivacyMechanism, Saveable):
    """Clips the update of every user, and adds the noise of the next step to their sum, as the last
    of the postprocessors.

    Metrics of norms before clipping, as pfl's own mechanisms have them, are not given: noise does
    not hide them.

    Args:
        noise: of the node; its plan is for sums, so without a batch size.
        clipping_bound: of the Euclidean norm of an update; must be the design's.

    Raises:
        InputError: as :class:`Run`; a design for random participation.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.adapters.pfl import DesignedMechanism
        >>> from noisedesign.noise import noise
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=0.5)
        >>> scheme = nd.participation.FixedEpoch(epochs=1, separation=2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> source = noise(nd.solve(problem).design, node=0, record=False)
        >>> mechanism = DesignedMechanism(source, clipping_bound=0.5)
        >>> sample = mechanism.user_sampler(["ann", "bob", "eve", "joe"], cohort_size=2)
        >>> mechanism.epsilon, sample() in ("ann", "bob", "eve", "joe")
        (1.0, True)
    """

    def __init__(self, noise: NodeNoise, *, clipping_bound: float) -> None:
        super().__init__()
        self.run = Run(noise, clip=clipping_bound, chooser="pfl, by cohorts of a fixed size,")
        self._clipping = _Clipping(2.0, self.run.clip)
        self._deviations = np.sqrt(noise.plan.variances)
        self._cohort: list[str] = []
        self._sum: Any = None

    def user_sampler(
        self, user_ids: Sequence[str], *, cohort_size: int, seed: int = 0
    ) -> Callable[[], str]:
        """Sample users for a ``FederatedDataset``: cohorts that come round as the design says, the
        same after a restart.

        Args:
            user_ids: of all users.
            cohort_size: the most of a cohort.
            seed: as of :meth:`Run.batches`.

        Returns:
            A function that gives the next user.

        Raises:
            InputError: as :meth:`Run.batches`; when a larger cohort is asked for.
        """
        batches = self.run.batches(len(user_ids), batch_size=cohort_size, seed=seed)

        def sample() -> str:
            cohort, at = batches[self.run.step], len(self._cohort)
            if at >= len(cohort):
                expected = f"{len(cohort)} users in iteration {self.run.step}"
                raise InputError("cohort_size", expected=expected, got="more")
            return user_ids[int(cohort[at])]

        return sample

    def postprocess_one_user(
        self, *, stats: TrainingStatistics, user_context: Any
    ) -> tuple[TrainingStatistics, Metrics]:
        """The update clipped; remembers who it is from, and the sum so far.

        Args:
            stats: the update.
            user_context: of the user.

        Returns:
            The clipped update, and no metrics.

        Raises:
            InputError: users without ids.
        """
        if user_context.user_id is None:
            remedy = "Name users: whether one comes too often cannot be told otherwise."
            raise InputError("user_id", expected="one", got="none", remedy=remedy)
        self._cohort.append(user_context.user_id)
        clipped, _ = self._clipping.constrain_sensitivity(stats)
        # As pfl adds them up, to the bit; whoever comes after may change the first one in place.
        first = self._sum is None
        self._sum = clipped.apply_elementwise(get_ops().clone) if first else clipped + self._sum
        return clipped, Metrics()

    def postprocess_server(
        self, *, stats: TrainingStatistics, **_: Any
    ) -> tuple[TrainingStatistics, Metrics]:
        """The sum with the noise of the next step.

        Args:
            stats: the sum of clipped updates.

        Returns:
            The sum with noise, and the standard deviation of it.

        Raises:
            InputError: as :meth:`Run.add_`; another sum than that of the clipped updates, as where
                other postprocessors come after this one; several workers.
        """
        if get_ops().distributed.world_size > 1:
            raise InputError("workers", expected="one, who sees all users", got="several")
        cohort, self._cohort = self._cohort, []
        metadata, arrays = _arrays(stats)
        clipped = [] if self._sum is None else _arrays(self._sum)[1]
        self._sum = None
        same = [
            np.array_equal(*pair, equal_nan=True) for pair in zip(arrays, clipped, strict=False)
        ]
        if len(clipped) != len(arrays) or not all(same):
            expected = "the sum of the clipped updates, as it is"
            remedy = (
                "Make DesignedMechanism the last of the postprocessors, and let pfl's "
                "SumAggregator add up."
            )
            raise InputError("postprocessors", expected=expected, got="another", remedy=remedy)
        step = self.run.step
        self.run.add_(arrays, records=cohort)
        tensors = [get_ops().to_tensor(array, dtype=str(array.dtype)) for array in arrays]
        deviation = Weighted.from_unweighted(float(self._deviations[step]))
        name = PrivacyMetricName("DP noise std. dev.", is_local_privacy=False, on_summed_stats=True)
        return stats.from_weights(metadata, tensors), Metrics([(name, deviation)])

    @property
    def epsilon(self) -> float | None:
        """Epsilon of the whole run, at the delta of the design."""
        return self.run.noise.claim.epsilon

    def save(self, dir_path: str) -> None:
        """Save a checkpoint for ``RestoreTrainingProcess``, without the secret.

        Args:
            dir_path: its folder.
        """
        with atomic.overwriting():
            atomic.write_text(Path(dir_path) / _STATE, json.dumps(self.run.state_dict()))

    def load(self, dir_path: str) -> None:
        """Go on after :meth:`save`.

        Args:
            dir_path: its folder.

        Raises:
            CheckpointNotFoundError: there is none, as pfl expects it of a run that is new.
            InputError: one that is damaged, or of another design, node or secret.
        """
        path = Path(dir_path) / _STATE
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointNotFoundError(str(path)) from None
        except ValueError:
            raise InputError("state", expected=f"a whole {path}", got="a damaged one") from None
        self.run.load_state_dict(state)
