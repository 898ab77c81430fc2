"""pfl-research with designed noise on the sums of cohorts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import NodeNoise
from tests.support.adapters import audit_noise, check_noise, designed_covariance
from tests.support.trainer_rows import times, trainer_row
from tests.support.trainers import CLIP, california, follow, node_noise, prefix_design, random_noise

torch = pytest.importorskip("torch", reason="needs the package torch")
pytest.importorskip("pfl", reason="needs the package pfl")

from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.callback.restore_training import RestoreTrainingCallback  # noqa: E402
from pfl.context import UserContext  # noqa: E402
from pfl.data.dataset import Dataset  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.exception import CheckpointNotFoundError  # noqa: E402
from pfl.hyperparam import NNTrainHyperParams  # noqa: E402
from pfl.metrics import Metrics, Weighted  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402
from pfl.postprocessor.base import Postprocessor  # noqa: E402
from pfl.stats import MappedVectorStatistics  # noqa: E402

from noisedesign.adapters.pfl import DesignedMechanism  # noqa: E402

RATE = 0.5
USERS = [f"district {u}" for u in range(40)]
COHORT = 10


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.out = torch.nn.Linear(8, 400), torch.nn.Linear(400, 1)

    def forward(self, x: Any) -> Any:
        return self.out(self.hidden(x).tanh())[:, 0]

    def loss(self, x: Any, y: Any, eval: bool = False) -> Any:
        return torch.nn.functional.mse_loss(self(x), y)

    def metrics(self, x: Any, y: Any, eval: bool = True) -> Any:
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


def update_by_hand(
    module: torch.nn.Module, x: np.ndarray, y: np.ndarray, *, rate: float
) -> np.ndarray:
    """What two steps of gradient descent on the mean squared error of tanh(x A + b) . o + s add to
    A, b, o, s, clipped to CLIP over all of them; in the order of the module's parameters."""
    a, b, o, s = start = [p.detach().double().numpy() for p in module.parameters()]
    for _ in range(2):
        h = np.tanh(x @ a.T + b)
        e = 2 * (h @ o[0] + s - y) / len(y)
        d = e[:, None] * o * (1 - h**2)
        a, b, o, s = a - rate * d.T @ x, b - rate * d.sum(0), o - rate * e @ h, s - rate * e.sum()
    moved = [after - before for after, before in zip((a, b, o, s), start, strict=True)]
    found = np.concatenate([part.ravel() for part in moved])
    return found * min(1.0, CLIP / np.linalg.norm(found))


def set_to(module: torch.nn.Module, values: np.ndarray) -> torch.nn.Module:
    torch.nn.utils.vector_to_parameters(torch.from_numpy(values).float(), module.parameters())
    return module


def flat(module: torch.nn.Module) -> np.ndarray:
    return torch.cat([p.detach().flatten() for p in module.parameters()]).double().numpy()


class Sums(Postprocessor):
    """Between users and server: the sums of what is clipped, before noise."""

    def __init__(self) -> None:
        self.found: list[np.ndarray] = []
        self.norms: list[float] = []
        self.users: list[str] = []

    def postprocess_one_user(self, *, stats: Any, user_context: Any) -> Any:
        _, weights = stats.get_weights()
        self.norms.append(sum(float(w.square().sum()) for w in weights) ** 0.5)
        self.users.append(user_context.user_id)
        return stats, Metrics()

    def postprocess_server(
        self, *, stats: Any, central_context: Any, aggregate_metrics: Any
    ) -> Any:
        _, weights = stats.get_weights()
        flats = [w.detach().flatten() for w in weights]
        self.found.append(torch.cat(flats).double().numpy().copy())
        return stats, Metrics()


class Moves(TrainingProcessCallback):
    def __init__(self, module: torch.nn.Module) -> None:
        self.at = [flat(module)]
        self.metrics: list[dict[str, Any]] = []

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> Any:
        self.at.append(flat(model.pytorch_model))
        self.metrics.append({str(name): value for name, value in aggregate_metrics})
        return False, Metrics()


def records_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = california()
    part = np.array_split(np.arange(len(x)), len(USERS))[USERS.index(name)]
    return x[part], y[part]


class Training:
    """Federated averaging on California housing; ``run`` returns what moved the parameters beside
    the sums of clipped updates."""

    def __init__(
        self, noise: NodeNoise, *, cohort: int = COHORT, sampler: Any = None, after: Any = ()
    ) -> None:
        def user(name: str) -> Dataset:
            return Dataset(tuple(map(torch.from_numpy, records_of(name))), user_id=name)

        self.mechanism = DesignedMechanism(noise, clipping_bound=CLIP)
        draw = self.mechanism.user_sampler(USERS, cohort_size=COHORT)
        users = FederatedDataset(user, sampler or draw)
        self.sums, self.module, self.cohort = Sums(), Network(), cohort
        # On the server the order is reversed: sums first, then the noise.
        post = [self.mechanism, self.sums, *after]
        self.backend = SimulatedBackend(users, users, postprocessors=post)
        self.model = PyTorchModel(
            self.module,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(self.module.parameters(), lr=RATE),
        )
        self.moves = Moves(self.module)

    def run(
        self,
        iterations: int = 12,
        callbacks: Any = (),
        algorithm: Any = None,
        local_rate: float = 0.05,
    ) -> np.ndarray:
        local = NNTrainHyperParams(
            local_num_epochs=2, local_learning_rate=local_rate, local_batch_size=None
        )
        parameters = NNAlgorithmParams(
            central_num_iterations=iterations,
            evaluation_frequency=1000,
            train_cohort_size=self.cohort,
            val_cohort_size=0,
        )
        (algorithm or FederatedAveraging()).run(
            parameters, self.backend, self.model, local, None, [*callbacks, self.moves]
        )
        # pfl averages, and its optimizer takes the difference for a gradient.
        moved = np.diff(self.moves.at, axis=0) / RATE * self.cohort
        return moved - np.array(self.sums.found)

    def users(self, t: int) -> list[tuple[np.ndarray, np.ndarray]]:
        return [records_of(name) for name in self.sums.users[t * COHORT : (t + 1) * COHORT]]

    def check_sums(self, *, rate: float) -> None:
        """Assert that sums before noise are those by hand, at the models that there were."""
        for before, found, t in zip(self.moves.at, self.sums.found, range(12), strict=False):
            at = set_to(Network(), before)
            exact = sum(update_by_hand(at, *user, rate=rate) for user in self.users(t))
            np.testing.assert_allclose(found, exact, atol=1e-5 * np.linalg.norm(exact))


def test_noise_in_the_parameters_is_that_of_the_design_for_the_whole_horizon() -> None:
    design = prefix_design()
    training = Training(node_noise(design))
    noises = training.run()
    assert noises.shape == (12, 8 * 400 + 400 + 400 + 1)
    check_noise(designed_covariance(design), noises)
    training.check_sums(rate=0.05)
    assert max(training.sums.norms) <= CLIP * (1 + 1e-6)
    assert len(training.sums.norms) == 12 * COHORT
    assert training.mechanism.epsilon == 6.0


def test_the_model_learns_what_the_right_one_learns() -> None:
    """A target so weak that noise hides little of it."""
    training, rate = Training(node_noise(prefix_design(epsilon=1e4))), 0.01
    training.run(local_rate=rate)
    training.check_sums(rate=rate)
    by_hand = Network()
    for t in range(12):
        sums = sum(update_by_hand(by_hand, *user, rate=rate) for user in training.users(t))
        set_to(by_hand, flat(by_hand) + RATE / COHORT * sums)
    x, y = map(torch.from_numpy, california())
    start, found, right = (one.loss(x, y).item() for one in (Network(), training.module, by_hand))
    assert right < 0.6 * start
    assert found < (start + right) / 2


def test_the_mechanism_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    training = Training(node_noise(prefix_design()))
    x, y = (torch.from_numpy(a) for a in california())
    scope = {
        "FederatedDataset": FederatedDataset,
        "SimulatedBackend": SimulatedBackend,
        "user_ids": [f"{u}" for u in range(200)],
        "make_dataset": lambda u: Dataset((x[int(u) :: 200], y[int(u) :: 200]), user_id=u),
        "val_data": None,
    }
    plan = prefix_design(clip=0.4, epsilon=1e4).node_plan(0)
    follow("pfl", scope, plan, monkeypatch)
    training.backend, training.cohort = scope["backend"], 50
    training.backend._postprocessors.insert(0, training.sums)  # of updates as they come
    before = training.module.loss(x, y).item()
    training.run(local_rate=0.01)
    assert scope["mechanism"].run.step == 12
    assert training.module.loss(x, y).item() < 0.6 * before
    total, steps = np.zeros(flat(training.module).size, dtype=np.float32), iter(range(12))
    source = node_noise(prefix_design())
    cost = times(
        lambda: source.step(next(steps), out=total), lambda: [training.module.loss(x, y).backward()]
    )
    trainer_row(
        "pfl-research",
        packages=("pfl", "torch"),
        works=["its simulated backend", "one user protected", "its checkpoints"],
        refuses=["random participation", "postprocessors after it", "users too often"],
        cost=f"{cost} a gradient of {len(y):,} records, {total.size:,} parameters",
    )


def test_metrics_say_the_deviation_of_every_step_and_no_norm_of_an_update() -> None:
    design = prefix_design()
    training = Training(node_noise(design))
    training.run()
    deviations = np.sqrt(np.diag(designed_covariance(design)))
    name = "Central DP | DP noise std. dev. on summed stats"
    found = [metrics[name].overall_value for metrics in training.moves.metrics]
    np.testing.assert_allclose(found, deviations, rtol=1e-12)
    assert not any("norm" in name for metrics in training.moves.metrics for name in metrics)


def statistics(*arrays: Any) -> MappedVectorStatistics:
    tensors = {str(i): torch.as_tensor(a) for i, a in enumerate(arrays)}
    return MappedVectorStatistics(tensors, weight=1.0)


def add(mechanism: DesignedMechanism, update: Any, user: Any) -> Any:
    """The sum of one update, with noise."""
    context = UserContext(num_datapoints=1, seed=None, user_id=user)
    clipped, _ = mechanism.postprocess_one_user(stats=update, user_context=context)
    noisy, _ = mechanism.postprocess_server(
        stats=clipped, central_context=None, aggregate_metrics=Metrics()
    )
    return noisy


def test_audit_of_noise_through_the_adapter_does_not_exceed_mu() -> None:
    design, numbers = prefix_design(epochs=2, separation=3), itertools.count(100)

    def draw(d: int) -> np.ndarray:
        mechanism = DesignedMechanism(node_noise(design, next(numbers)), clipping_bound=CLIP)
        sums = statistics(np.zeros(d))
        return np.array([add(mechanism, sums, str(t % 3))["0"].numpy() for t in range(6)])

    report = audit_noise(design, draw, runs=20_000)
    assert not report.exceeds
    assert report.close


class Killed(TrainingProcessCallback):
    def after_central_iteration(self, *_: Any, central_iteration: int, **__: Any) -> Any:
        if central_iteration == 4:
            raise KeyboardInterrupt
        return False, Metrics()


def test_restart_goes_on_with_the_same_noise_and_users(tmp_path: Path) -> None:
    design = prefix_design()
    whole = Training(node_noise(design, record=tmp_path / "whole.sqlite3")).run()

    def restoring(training: Training, algorithm: Any) -> RestoreTrainingCallback:
        saveables = [training.mechanism, training.model, algorithm]
        return RestoreTrainingCallback(saveables, str(tmp_path / "state"), checkpoint_frequency=3)

    first, algorithm = (
        Training(node_noise(design, record=tmp_path / "r.sqlite3")),
        FederatedAveraging(),
    )
    with pytest.raises(KeyboardInterrupt):  # after the fifth iteration; saved after the fourth
        first.run(callbacks=[restoring(first, algorithm), Killed()], algorithm=algorithm)

    again = Training(node_noise(design, record=tmp_path / "r.sqlite3", resume=True))
    algorithm = FederatedAveraging()
    callback = restoring(again, algorithm)
    callback.on_train_begin(model=again.model)
    again.moves.at = [flat(again.module)]
    np.testing.assert_array_equal(again.run(callbacks=[callback], algorithm=algorithm), whole[4:])


def test_a_checkpoint_that_is_missing_or_damaged(tmp_path: Path) -> None:
    mechanism = DesignedMechanism(node_noise(prefix_design()), clipping_bound=CLIP)
    with pytest.raises(CheckpointNotFoundError):
        mechanism.load(str(tmp_path))
    mechanism.save(str(tmp_path))
    mechanism.load(str(tmp_path))
    (tmp_path / "noisedesign.json").write_text('{"step": 1')
    with pytest.raises(InputError, match="state: expected a whole .*damaged"):
        mechanism.load(str(tmp_path))
    (tmp_path / "noisedesign.json").write_text("[]")
    with pytest.raises(InputError, match="state"):
        mechanism.load(str(tmp_path))


# --- what is refused ---


class Times(Postprocessor):
    """After the mechanism: times a factor, of every update or of their sum."""

    def __init__(self, factor: float, *, user: bool, in_place: bool = False) -> None:
        self.factor, self.user, self.in_place = factor, user, in_place

    def times(self, stats: Any) -> Any:
        if self.in_place:
            for part in stats.values():
                part *= self.factor
            return stats, Metrics()
        return stats.apply_elementwise(lambda part: part * self.factor), Metrics()

    def postprocess_one_user(self, *, stats: Any, user_context: Any) -> Any:
        return self.times(stats) if self.user else (stats, Metrics())

    def postprocess_server(self, *, stats: Any, **_: Any) -> Any:
        return (stats, Metrics()) if self.user else self.times(stats)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("user", [False, True])
@pytest.mark.parametrize("factor", [100.0, 1 + 1e-6])
def test_a_postprocessor_after_it_is_refused(factor: float, user: bool, in_place: bool) -> None:
    after = [Times(factor, user=user, in_place=in_place)]
    training = Training(node_noise(prefix_design()), after=after)
    with pytest.raises(InputError, match="postprocessors: expected the sum of the clipped"):
        training.run(iterations=1)
    assert (training.mechanism.run.step, len(training.moves.at)) == (0, 1)


def test_users_too_often_are_refused() -> None:
    """A sampler of one's own that comes round after two iterations in place of four."""
    users = itertools.cycle(USERS[:20])
    training = Training(node_noise(prefix_design()), sampler=lambda: next(users))
    with pytest.raises(InputError, match=r"record 'district 0' in steps 0, 2, less than 4 apart"):
        training.run()
    assert len(training.moves.at) == 3


def test_cohorts_that_are_not_the_designs_are_refused() -> None:
    training = Training(node_noise(prefix_design()), cohort=11)
    with pytest.raises(InputError, match="cohort_size: expected 10 users in iteration 0"):
        training.run()
    with pytest.raises(InputError, match="batch_size: expected 4 batches a round"):
        training.mechanism.user_sampler(USERS, cohort_size=20)


def test_bad_input_is_refused() -> None:
    design = prefix_design()
    with pytest.raises(InputError, match="clip: expected 0.5"):
        DesignedMechanism(node_noise(design), clipping_bound=1.0)
    with pytest.raises(InputError, match="batch_size"):
        DesignedMechanism(
            node_noise(design.node_plan(0, batch_size=3), batch_size=3), clipping_bound=CLIP
        )
    mechanism = DesignedMechanism(node_noise(design), clipping_bound=CLIP)
    with pytest.raises(InputError, match="user_id"):
        add(mechanism, statistics(np.zeros(3)), None)
    with pytest.raises(InputError, match="finite"):
        add(mechanism, statistics(np.array([0.0, np.nan])), "a")
    with pytest.raises(InputError, match="float32 or float64"):
        add(mechanism, statistics(np.zeros(3, dtype=np.float16)), "a")
    add(mechanism, statistics(np.zeros(3)), "a")
    with pytest.raises(InputError, match="shapes"):
        add(mechanism, statistics(np.zeros(4)), "b")
    assert mechanism.run.step == 1


def test_more_iterations_than_the_horizon_are_refused() -> None:
    training = Training(node_noise(prefix_design()))
    with pytest.raises(InputError, match="step: expected 0 to 11"):
        training.run(iterations=13)
    assert len(training.moves.at) == 13


def test_random_participation_is_refused_as_cohorts_are_of_a_fixed_size() -> None:
    with pytest.raises(InputError, match="participation: expected one in which pfl, by cohorts"):
        DesignedMechanism(random_noise(), clipping_bound=CLIP)
