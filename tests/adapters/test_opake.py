"""A design as a strategy of Opake's matrix-factorization noise."""

from __future__ import annotations

import dataclasses
import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError, TimeStructure
from noisedesign.noise import NodeNoise
from noisedesign.problem.calibration import calibrate
from tests.adapters.torch_networks import RATE, by_hand, flat, network, numbers
from tests.support.adapters import audit_noise, check_noise, designed_covariance
from tests.support.pages import examples
from tests.support.scripts import block, check_a_start_without_a_plan, check_it_goes_on
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import CLIP, a9a, check_learned, node_noise, prefix_design, random_noise

torch = pytest.importorskip("torch", reason="needs the package torch")
pytest.importorskip("opake.dpftrl", reason="needs the package opake-dpftrl")

from opake.dpftrl.clipping import clipped_grad  # noqa: E402
from opake.dpftrl.noise import band_mf_strategy, mf_gaussian_noise  # noqa: E402
from opake.random import key  # noqa: E402
from opake.serialization import from_state_dict, state_dict  # noqa: E402
from opake.types import clipped  # noqa: E402

from noisedesign.adapters.opake import DesignedStrategy  # noqa: E402

PAGE = "docs/guides/opake.md"


class Training:
    """A run over a9a with Opake's clipping; ``noises`` is what moved the parameters of the network
    beside the sums of gradients, which are taken by hand."""

    def __init__(self, noise: NodeNoise, *, records: int = 2000, batch_size: int = 500) -> None:
        self.module, self.strategy = network(), DesignedStrategy(noise)
        self.x, self.y = (torch.from_numpy(part[:records]) for part in a9a())
        self.parameters = {name: p.detach() for name, p in self.module.named_parameters()}
        self.batches = self.strategy.run.batches(records, batch_size=batch_size)
        self.clip, self.clip_state = clipped_grad(
            self.loss, clipping_norm=CLIP, batch_argnums=(1, 2)
        )
        self.add_noise, self.state = mf_gaussian_noise(
            self.parameters, self.strategy, key=key(0), **self.strategy.schema()
        )
        self.noises: list[np.ndarray] = []

    def loss(self, parameters: Any, x: Any, y: Any) -> Any:
        out = torch.func.functional_call(self.module, parameters, (x[None],))
        bce = torch.nn.functional.binary_cross_entropy_with_logits
        return bce(out[:, 0], y[None])

    def step(self, t: int) -> None:
        batch = self.batches[t]
        exact, before = by_hand(self.module, self.x[batch], self.y[batch]), flat(self.module)
        sums, self.clip_state = self.clip(
            self.parameters, self.x[batch], self.y[batch], state=self.clip_state
        )
        self.strategy.attend(batch)
        noisy, self.state = self.add_noise(sums, self.state)
        for name, p in self.parameters.items():
            p -= RATE / self.batches.expected_size * noisy.pytree[name]
        moved = (before - flat(self.module)) / RATE * self.batches.expected_size
        self.noises.append(moved - exact)


def in_order(noise: np.ndarray) -> np.ndarray:
    """From the order of leaves, which is that of their names, to that of parameters."""
    bias, hidden, shift, out = np.split(noise, np.cumsum([32, 123 * 32, 1]))
    return np.concatenate([hidden, bias, out, shift])


def test_noise_in_the_parameters_is_that_of_the_design() -> None:
    design = prefix_design()
    training = Training(node_noise(design))
    for t in range(12):
        training.step(t)
    check_noise(designed_covariance(design), np.array(training.noises))
    exact = [in_order(node_noise(design).step(t, 4001)) for t in range(12)]
    np.testing.assert_allclose(training.noises, exact, atol=1e-3)
    data = tuple(part[:2000] for part in a9a())
    check_learned(
        numbers(training.module), numbers(network()), training.batches, data, rate=RATE / 500
    )


def test_batches_that_the_node_draws_some_of_them_empty() -> None:
    training = Training(random_noise(), records=12, batch_size=2)
    for t in range(12):
        training.step(t)
    exact = [in_order(random_noise().step(t, 4001)) for t in range(12)]
    np.testing.assert_allclose(training.noises, exact, atol=1e-4)


def made(strategy: DesignedStrategy, size: int = 3000, **how: Any) -> tuple[Any, Any, Any]:
    zeros = {"w": torch.zeros(size)}
    add, state = mf_gaussian_noise(zeros, strategy, key=key(0), **{**strategy.schema(), **how})
    return add, state, clipped(zeros, max_norm=CLIP)


def test_standard_deviations_that_optimizers_are_told() -> None:
    design = prefix_design()
    strategy = DesignedStrategy(node_noise(design))
    add, state, zeros = made(strategy)
    for t, variance in enumerate(np.diag(designed_covariance(design))):
        strategy.attend([t])
        noisy, state = add(zeros, state)
        assert noisy.noise_stddev == pytest.approx(variance**0.5)


def test_audit_of_noise_through_opake_does_not_exceed_mu() -> None:
    design, numbers = prefix_design(epochs=2, separation=3), iter(range(100, 10_000))

    def draw(d: int) -> np.ndarray:
        strategy = DesignedStrategy(node_noise(design, next(numbers)))
        add, state, zeros = made(strategy, d)
        found = []
        for t in range(6):
            strategy.attend([t % 3])
            noisy, state = add(zeros, state)
            found.append(noisy.pytree["w"].numpy())
        return np.array(found)

    report = audit_noise(design, draw, runs=20_000)
    assert not report.exceeds
    assert report.close


@pytest.fixture
def mf_gaussian(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opake's accountant of matrix factorizations. A dataclass with a slot for weak references
    that a base has already, as one of Opake is, is an error of early patches of Python 3.11."""
    real = dataclasses.dataclass

    def patched(cls: Any = None, /, **kwargs: Any) -> Any:
        return real(cls, **{**kwargs, "weakref_slot": False})

    try:
        module = importlib.import_module("opake.dpftrl.accounting.mechanisms")
    except TypeError:
        monkeypatch.setattr(dataclasses, "dataclass", patched)
        module = importlib.import_module("opake.dpftrl.accounting.mechanisms")
    return module.mf_gaussian


def test_epsilon_of_opakes_accountant_is_that_of_the_design(mf_gaussian: Any) -> None:
    strategy = DesignedStrategy(node_noise(prefix_design()))
    process = mf_gaussian(strategy=strategy, **strategy.schema())
    assert process.epsilon_at(1e-5) == pytest.approx(6.0, rel=1e-6)


def test_epsilon_with_a_sensitivity_of_opakes_own(mf_gaussian: Any) -> None:
    """Its accountant and its sensitivity, for its own bands of our noise multiplier; both of a
    record that is added or removed."""
    from noisedesign import PrivacyTarget, TimeProblem, participation

    theirs = band_mf_strategy(bands=4)
    column = np.zeros(12)
    column[:4] = theirs.coefficients(n_steps=12).numpy()[:4]
    strategy = np.array([[column[t - s] if t >= s else 0.0 for s in range(12)] for t in range(12)])
    use = participation.FixedEpoch(epochs=3, separation=4)
    target = PrivacyTarget(epsilon=6.0, delta=1e-5, clip=CLIP, adjacency="zero-out")
    problem = TimeProblem.prefix(
        participation=use, structure=TimeStructure(kind="banded", bands=4), privacy=target
    )
    found = calibrate(problem)
    assert found.step_sensitivity == CLIP
    # |C u|^2 summed over the three columns of a record, by the definition: no two overlap.
    by_definition = max(
        float(np.linalg.norm(strategy[:, first::4].sum(axis=1))) for first in range(4)
    )
    schema = {"n_steps": 12, "min_sep": 4, "max_participations": 3}
    assert theirs.sensitivity(**schema) == pytest.approx(by_definition, rel=1e-9)
    # A C whose sensitivity is one has the noise multiplier 1 / mu.
    process = mf_gaussian(by_definition / found.mu, theirs, **schema)
    assert process.epsilon_at(1e-5) == pytest.approx(6.0, rel=2e-3)


def test_restart_goes_on_with_the_same_noise(tmp_path: Path) -> None:
    record = tmp_path / "records.sqlite3"
    first = DesignedStrategy(node_noise(prefix_design(), record=record))
    add, state, zeros = made(first)
    saved = None
    for t in range(4):
        if t == 2:
            saved = state_dict(first), state_dict(state)
        first.attend([t])
        noisy, state = add(zeros, state)
    assert saved is not None
    again = DesignedStrategy(node_noise(prefix_design(), record=record, resume=True))
    again = from_state_dict(again, saved[0])
    add, state, zeros = made(again)
    state = from_state_dict(state, saved[1])
    assert (again.run.step, state._step_counter) == (2, 2)
    for t in (2, 3):
        again.attend([t])
        repeated, state = add(zeros, state)
    np.testing.assert_array_equal(repeated.pytree["w"], noisy.pytree["w"])


def test_the_script_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a9a(10)  # or skipped
    monkeypatch.chdir(tmp_path)
    exec(examples(PAGE), {})  # the plan
    paths = check_it_goes_on(block(PAGE, "py"), tmp_path)
    models = [torch.load(path, weights_only=False)["parameters"] for path in paths]
    for name, numbers_ in models[0].items():
        assert torch.equal(numbers_, models[1][name])


def test_the_script_begins_after_a_start_without_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a9a(10)  # or skipped
    monkeypatch.chdir(tmp_path)
    exec(examples(PAGE), {})  # the plan
    check_a_start_without_a_plan(block(PAGE, "py"), tmp_path)


# --- what is refused ---


def test_what_contradicts_the_design_is_refused() -> None:
    strategy = DesignedStrategy(node_noise(prefix_design()))
    add, state, zeros = made(strategy)
    with pytest.raises(InputError, match="records: expected the records in the sum of step 0"):
        add(zeros, state)
    strategy.attend([0])
    with pytest.raises(InputError, match="noise_multiplier: expected"):
        add(clipped(zeros.pytree, max_norm=1.0), state)
    with pytest.raises(InputError, match="noise_multiplier: expected"):
        add(zeros / 500, state)
    long = clipped({"w": torch.ones(3000)}, max_norm=CLIP)
    with pytest.raises(InputError, match="norm"):
        add(long, state)
    assert strategy.run.step == 0
    _, after = add(zeros, state)
    strategy.attend([1])
    with pytest.raises(InputError, match="state: expected that of step 1"):
        add(zeros, state)
    strategy.attend([0])
    with pytest.raises(InputError, match="records"):
        add(zeros, after)
    with pytest.raises(InputError, match="n_steps: expected 12 at most"):
        made(strategy, n_steps=13)
    louder, state, zeros = made(DesignedStrategy(node_noise(prefix_design())), noise_multiplier=1.0)
    with pytest.raises(InputError, match="records|noise_multiplier"):
        louder(zeros, state)


@pytest.mark.parametrize(
    ("field", "how"),
    [
        ("min_sep", {"n_steps": 12, "max_participations": 3}),
        ("max_participations", {"n_steps": 12, "min_sep": 4, "max_participations": 4}),
        ("n_steps", {"n_steps": 16, "min_sep": 4, "max_participations": 3}),
    ],
)
def test_more_participations_than_the_designs_have_no_sensitivity(
    field: str, how: dict[str, int]
) -> None:
    strategy = DesignedStrategy(node_noise(prefix_design()))
    if field == "max_participations":
        how = {**how, "n_steps": 12, "min_sep": 3}
        field = "min_sep"
    with pytest.raises(InputError, match=f"^{field}: expected"):
        strategy.sensitivity(**how)


def test_amplification_of_opake_is_refused() -> None:
    strategy = DesignedStrategy(node_noise(prefix_design()))
    for name in ("coefficients", "gram_matrix", "streaming_matrix"):
        with pytest.raises(InputError, match=f"^{name}: expected no matrix of Opake"):
            getattr(strategy, name)(n_steps=12, min_sep=4, max_participations=3)
    with pytest.raises(InputError, match="batch_size"):
        DesignedStrategy(node_noise(prefix_design().node_plan(0, batch_size=5), batch_size=5))


def test_what_a_step_costs_beside_one_of_opake() -> None:
    torch.set_num_threads(1)
    size, steps = 300_000, 12
    theirs = band_mf_strategy(bands=4)
    own = {"n_steps": steps, "min_sep": 4, "max_participations": 3, "noise_multiplier": 1.0}
    zeros = {"w": torch.zeros(size)}
    banded = prefix_design(structure=TimeStructure(kind="banded", bands=4))
    strategy = DesignedStrategy(node_noise(banded))
    add, state, ours = made(strategy, size)
    other, other_state = mf_gaussian_noise(zeros, theirs, key=key(0), **own)
    spent: list[list[float]] = [[], []]
    for t in range(steps):
        start = time.process_time()
        _, other_state = other(clipped(zeros, max_norm=CLIP), other_state)
        between = time.process_time()
        strategy.attend([t])
        _, state = add(ours, state)
        spent[0].append(between - start)
        spent[1].append(time.process_time() - between)
    theirs_took, ours_took = map(min, spent)
    assert theirs_took > 0
    trainer_row(
        "Opake",
        packages=("opake-dpftrl", "torch"),
        works=[
            "designs as strategies of mf_gaussian_noise, keyed by 256 bits",
            "Opake's clipping and its accountant",
            "random batches",
            "checkpoints, kill -9",
        ],
        refuses=[
            "its amplification, second moments and groups of norms",
            "another norm, schema or noise multiplier",
            "sums whose records nobody said",
        ],
        cost=f"{ours_took / theirs_took:.1f} of the noise of Opake, four bands each "
        f"({size:,} parameters)",
    )
