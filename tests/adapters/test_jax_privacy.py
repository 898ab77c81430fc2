"""Designed noise in JAX, with and without JAX Privacy's own loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign import InputError
from noisedesign.noise import NodeNoise
from tests.support.adapters import audit_noise, check_noise, designed_covariance
from tests.support.trainers import (
    CLIP,
    FEATURES,
    a9a,
    california,
    check_learned,
    node_noise,
    pair_secrets,
    prefix_design,
    random_noise,
    seeds_design,
    sums_by_hand,
)

jax = pytest.importorskip("jax", reason="needs the package jax")
pytest.importorskip("jax_privacy", minversion="2", reason="needs the package jax_privacy 2")

import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
from jax_privacy import noise_addition  # noqa: E402

from noisedesign.adapters.jax_privacy import Training, streaming_matrix  # noqa: E402

WIDTH = 16


@cache
def structured(kind: str, **kwargs: Any) -> nd.Design:
    return prefix_design(structure=nd.TimeStructure(kind=kind, **kwargs))


STRUCTURES: dict[str, dict[str, Any]] = {
    "dense": {},
    "banded": {"bands": 3},
    "toeplitz": {},
    "banded-inverse": {"bands": 3},
    "blt": {"buffers": 2},
}


def model(dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(FEATURES, WIDTH)) / np.sqrt(FEATURES)
    out = rng.normal(size=WIDTH) / np.sqrt(WIDTH)
    parts = {"hidden": hidden, "out": out, "shift": np.zeros(())}
    return {name: jnp.asarray(part, dtype=dtype) for name, part in parts.items()}


def loss(params: Any, features: Any, labels: Any) -> Any:
    """Of one record or of many."""
    logits = jnp.tanh(features @ params["hidden"]) @ params["out"] + params["shift"]
    return optax.sigmoid_binary_cross_entropy(logits, labels).mean()


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(tree)])


def numbers(params: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(part, float) for name, part in params.items()}


class Loop:
    """A run over a9a; ``noises`` is what moved the parameters beside the sums of gradients, which
    are taken by hand."""

    def __init__(self, noise: NodeNoise, *, compiled: bool = True) -> None:
        self.training = Training(noise, clip=CLIP)
        self.params = model()
        self.x, self.y = map(jnp.asarray, a9a())
        self.batches = self.training.batches(len(self.x))
        self.clipped = jax.jit(self.training.clipped_grad(loss))
        self.rate = 8.0 / len(self.batches[0])
        self.optimizer = optax.chain(self.training.privatizer(), optax.sgd(self.rate))
        self.update: Any = jax.jit(self.optimizer.update) if compiled else self.optimizer.update
        self.state = self.optimizer.init(self.params)
        self.noises: list[np.ndarray] = []

    def steps(self, until: int | None = None) -> Iterator[int]:
        while self.training.step < (until or self.training.horizon):
            records = self.batches[self.training.step]
            sums = self.clipped(self.params, self.x[records], self.y[records])
            before = self.params
            x, y = (part[records] for part in a9a())
            exact = flat(sums_by_hand(numbers(before), x, y))
            np.testing.assert_allclose(flat(sums), exact, atol=1e-5 * np.linalg.norm(exact))
            moves, self.state = self.update(sums, self.state, records=records)
            self.params = jax.block_until_ready(optax.apply_updates(before, moves))
            self.noises.append((flat(before) - flat(self.params)) / self.rate - exact)
            yield self.training.step

    def run(self, until: int | None = None) -> np.ndarray:
        for _ in self.steps(until):
            pass
        return np.array(self.noises)


# --- noise in the parameters ------------------------------------------------------------------


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize("compiled", [False, True])
def test_noise_in_the_parameters_is_that_of_the_design(kind: str, compiled: bool) -> None:
    design = structured(kind, **STRUCTURES[kind])
    loop = Loop(node_noise(design), compiled=compiled)
    noises = loop.run()
    assert noises.shape == (12, FEATURES * WIDTH + WIDTH + 1)
    check_noise(designed_covariance(design), noises)
    check_learned(numbers(loop.params), numbers(model()), loop.batches, a9a(), rate=loop.rate)


def test_it_is_the_noise_of_the_node_to_the_bit() -> None:
    """In the order of the leaves; compiled or not."""
    design = prefix_design()
    training = Training(node_noise(design), clip=CLIP)
    zeros = {"b": jnp.zeros((3, 5)), "a": jnp.zeros(()), "c": [jnp.zeros(2)]}
    privatizer = training.privatizer()
    update, state = jax.jit(privatizer.update), privatizer.init(zeros)
    direct = node_noise(design)
    for t in range(4):
        once = update if t % 2 else privatizer.update
        noisy, state = once(zeros, state, records=np.array([t]))
        exact = direct.step(t, (18,), dtype=np.float32)
        np.testing.assert_array_equal(noisy["a"], exact[0])
        np.testing.assert_array_equal(np.ravel(noisy["b"]), exact[1:16])
        np.testing.assert_array_equal(noisy["c"][0], exact[16:])
        assert noisy["b"].dtype == np.float32


def test_float64_where_jax_has_it() -> None:
    design, direct = prefix_design(), node_noise(prefix_design())
    with jax.enable_x64(True):
        privatizer = Training(node_noise(design)).privatizer()
        found, _ = jax.jit(privatizer.update)(
            jnp.zeros(50), privatizer.init(jnp.zeros(50)), records=jnp.arange(3)
        )
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, direct.step(0, (50,)))


def test_a_compiled_loop_over_real_data() -> None:
    """California housing, all steps in one program: least squares by scan."""
    x, y = (np.asarray(a) for a in california())
    design = prefix_design(epochs=2, separation=5)
    training = Training(node_noise(design), clip=CLIP)
    batches = training.batches(20_000)
    records = jnp.asarray(np.array([batches[t] for t in range(len(batches))]))
    privatizer = training.privatizer()
    wide, target = np.tile(x, 40)[:20_000], y[:20_000]
    features, values, rate = jnp.asarray(wide), jnp.asarray(target), 2e-5

    def error(w: Any, features: Any, value: Any) -> Any:
        return jnp.mean((features @ w - value) ** 2) / 2

    clipped = training.clipped_grad(error)

    def body(carry: Any, batch: Any) -> Any:
        w, state = carry
        sums = clipped(w, features[batch], values[batch])
        noisy, state = privatizer.update(sums, state, records=batch)
        return (w - rate * noisy, state), (w, noisy)

    start = jnp.zeros(320)
    (w, _), (before, noisy) = jax.jit(lambda c: jax.lax.scan(body, c, records))(
        (start, privatizer.init(start))
    )
    assert training.step == 10

    def by_hand(w: np.ndarray, batch: np.ndarray) -> np.ndarray:
        """The gradient of a record is (x . w - y) x."""
        wrong, rows = wide[batch] @ w - target[batch], wide[batch].astype(float)
        norms = np.abs(wrong) * np.linalg.norm(rows, axis=1)
        return np.asarray((wrong * np.minimum(1, CLIP / norms)) @ rows)

    sums = [by_hand(np.asarray(w, float), batch) for w, batch in zip(before, batches, strict=True)]
    check_noise(designed_covariance(design), np.asarray(noisy) - np.array(sums))
    exact = np.zeros(320)
    for batch in batches:
        exact -= rate * by_hand(exact, batch)
    found, right = (float(np.mean((wide @ v - target) ** 2)) for v in (w, exact))
    assert right < 0.7 < 0.98 < np.mean(target**2)
    assert found < (np.mean(target**2) + right) / 2


def test_shared_seeds_of_neighbours_cancel() -> None:
    """Noise that nodes share comes out of the adapters of both: the covariance across nodes."""
    design = seeds_design()
    d, found = 4000, []
    for node in range(4):
        plan = design.node_plan(node)
        noise = node_noise(plan, 20 + node, node=node, seeds=pair_secrets(design, node))
        privatizer = Training(noise).privatizer()
        sums = jnp.zeros(d)
        state, rows = privatizer.init(sums), []
        for _ in range(4):
            noisy, state = privatizer.update(sums, state, records=[0])
            rows.append(np.asarray(noisy))
        found.append(rows)
    strategy = np.linalg.inv(design.noise.strategy.dense())
    scale = nd.calibrate(design.problem).noise_stddev ** 2
    covariance = scale * np.kron(strategy @ strategy.T, design.covariance)
    check_noise(covariance, np.array(found).transpose(1, 0, 2))


def test_audit_of_noise_through_the_adapter_does_not_exceed_mu() -> None:
    design, numbers = prefix_design(epochs=2, separation=3), iter(range(300, 400))

    def draw(d: int) -> np.ndarray:
        training = Training(node_noise(design, next(numbers)), clip=CLIP)
        privatizer = training.privatizer()
        update, sums = jax.jit(privatizer.update), jnp.zeros(d)
        state, found = privatizer.init(sums), []
        for t in range(training.horizon):
            noisy, state = update(sums, state, records=np.array([t % 3]))
            found.append(np.asarray(noisy, float))
        return np.array(found)

    report = audit_noise(design, draw, runs=20_000)
    assert not report.exceeds
    assert report.close


def test_epsilon_is_that_of_the_design() -> None:
    """Also by JAX Privacy's accountant of single releases, of one event whatever the steps."""
    from jax_privacy.accounting import accountants, analysis

    training = Training(node_noise(prefix_design()), clip=CLIP)
    claim = training.noise.claim
    assert (claim.epsilon, claim.delta) == (6.0, 1e-5)
    accountant = analysis.SingleReleaseTrainingAccountant(accountants.PldAccountantConfig())
    params = analysis.DpParams(
        noise_multipliers=nd.privacy.dp_event(training.noise).noise_multiplier,
        num_samples=6000,
        delta=1e-5,
        batch_size=1500,
    )
    assert accountant.compute_epsilon(12, params) == pytest.approx(6.0, rel=1e-5)


# --- JAX Privacy's own matrices and loop ------------------------------------------------------


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("kind", [kind for kind in STRUCTURES if kind != "dense"])
def test_streaming_matrices_are_those_of_the_design(kind: str, x64: bool) -> None:
    design = structured(kind, **STRUCTURES[kind])
    with jax.enable_x64(x64):
        found = np.asarray(streaming_matrix(design.node_plan(0)).materialize(12), float)
    expected = nd.calibrate(design.problem).noise_stddev * np.linalg.inv(design.strategy)
    tolerance = 1e-11 if x64 else 2e-5
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())
    assert not np.triu(found, 1).any()


def test_streaming_matrix_of_noise_that_is_fresh() -> None:
    problem = nd.SpaceProblem(
        mixing=np.full((2, 2), 0.5) + np.diag([0.25, 0.25]) - 0.25 * np.eye(2)[::-1],
        participation=nd.participation.every_step(3),
        privacy=nd.PrivacyTarget(epsilon=3.0, delta=1e-5),
        structure=nd.SpaceStructure(kind="independent"),
    )
    design = nd.solve(problem).design
    plan = design.node_plan(1)
    found = np.asarray(streaming_matrix(plan).materialize(3), float)
    np.testing.assert_allclose(found, plan.streams[0].coefficient * np.eye(3), rtol=1e-6)


def test_what_has_no_streaming_matrix() -> None:
    expected = "plan: expected a banded or Toeplitz C, or one of positive buffers"
    signed = structured("signed-blt", buffers=2).node_plan(0)
    for plan in (prefix_design().node_plan(0), signed):
        with pytest.raises(InputError, match=expected):
            streaming_matrix(plan)
    with pytest.raises(InputError, match="plan: expected noise of its own alone"):
        streaming_matrix(seeds_design().node_plan(0))


def test_the_loop_of_jax_privacy_without_records() -> None:
    """Its selection says which records it hands out, and goes on after a break."""
    design = prefix_design()
    training = Training(node_noise(design), clip=CLIP)
    privatizer, x = training.privatizer(), jnp.asarray(a9a()[0])
    sums, seen = jnp.zeros(2000), []
    state = privatizer.init(sums)
    update = jax.jit(privatizer.update)
    selection = training.batch_selection(seed=3)
    for part in (5, 12):
        for indices in selection.batch_iterator(len(x)):
            # Nobody waits: steps are taken while the next batches are handed out.
            _, state = update(sums, state)
            seen.append(indices)
            if len(seen) == part:
                break
    assert training.state_dict()["step"] == len(seen) == 12
    assert sorted(np.concatenate(seen[:4])) == list(range(len(x)))
    np.testing.assert_array_equal(seen[0], seen[4])
    with pytest.raises(RuntimeError, match="records: expected the records in this sum"):
        jax.block_until_ready(update(sums, state))


# --- what is refused --------------------------------------------------------------------------


def small(**kwargs: Any) -> tuple[Training, Any, Any]:
    training = Training(node_noise(prefix_design(epochs=2, separation=2), **kwargs), clip=CLIP)
    privatizer = training.privatizer()
    return training, privatizer, privatizer.init(jnp.zeros(3))


@pytest.mark.parametrize("kind", ["dense", "banded"])
def test_a_step_too_many_raises(kind: str) -> None:
    bands = {"bands": 2} if kind == "banded" else {}
    design = prefix_design(epochs=2, separation=2, structure=nd.TimeStructure(kind=kind, **bands))
    for compiled in (False, True):
        training = Training(node_noise(design), clip=CLIP)
        privatizer, sums = training.privatizer(), jnp.zeros(3)
        update = jax.jit(privatizer.update) if compiled else privatizer.update
        state = privatizer.init(sums)
        for t in range(4):
            _, state = update(sums, state, records=jnp.array([t % 2]))
        jax.block_until_ready(state)
        with pytest.raises(RuntimeError if compiled else InputError, match="step: expected"):
            jax.block_until_ready(update(sums, state, records=jnp.array([7])))
        assert training.step == 4


def test_a_step_too_many_raises_in_a_compiled_loop() -> None:
    training, privatizer, state = small()

    def body(state: Any, batch: Any) -> Any:
        noisy, state = privatizer.update(jnp.zeros(3), state, records=batch)
        return state, noisy

    batches = jnp.array([[0], [1], [0], [1], [2]])
    with pytest.raises(RuntimeError, match="step: expected 0 to 3"):
        jax.block_until_ready(jax.lax.scan(body, state, batches))
    assert training.step == 4


@pytest.mark.parametrize("compiled", [False, True])
def test_wrong_participation_is_refused_and_no_step_is_taken(compiled: bool) -> None:
    training, privatizer, state = small()
    update = jax.jit(privatizer.update) if compiled else privatizer.update
    error = RuntimeError if compiled else InputError
    _, state = update(jnp.full(3, 0.125), state, records=jnp.array([0, 5]))
    jax.block_until_ready(state)
    for wrong, words in (([5], "less than 2 apart"), ([1, 1], "twice in the batch")):
        with pytest.raises(error, match=words):
            jax.block_until_ready(update(jnp.full(3, 0.125), state, records=jnp.array(wrong)))
    assert training.step == 1
    noisy, _ = update(jnp.full(3, 0.125), state, records=jnp.array([1]))
    exact = node_noise(prefix_design(epochs=2, separation=2)).step(1, (3,), dtype=np.float32)
    np.testing.assert_array_equal(noisy, exact + np.float32(0.125))


def test_nobody_says_who_took_part() -> None:
    _, privatizer, state = small()
    for update in (privatizer.update, jax.jit(privatizer.update)):
        with pytest.raises(InputError, match="records: expected the records in this sum"):
            update(jnp.zeros(3), state)


def test_a_state_is_used_once() -> None:
    """Else the same noise would be on other data."""
    training, privatizer, state = small()
    privatizer.update(jnp.zeros(3), state, records=[0])
    with pytest.raises(InputError, match="state: expected the state of step 1"):
        privatizer.update(jnp.ones(3), state, records=[0])
    with pytest.raises(RuntimeError, match="state: expected the state of step 1"):
        jax.block_until_ready(
            jax.jit(privatizer.update)(jnp.ones(3), state, records=jnp.ones(1, int))
        )
    assert training.step == 1


def test_several_models_at_once_are_refused() -> None:
    """vmap would give them one noise."""
    _, privatizer, state = small()
    with pytest.raises((ValueError, NotImplementedError)):
        jax.vmap(lambda g: privatizer.update(g, state, records=jnp.array([0])))(jnp.zeros((2, 3)))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_gradients_that_are_not_finite_are_refused(number: float, compiled: bool) -> None:
    training, privatizer, state = small()
    update = jax.jit(privatizer.update) if compiled else privatizer.update
    with pytest.raises(RuntimeError if compiled else InputError, match="expected finite"):
        jax.block_until_ready(update(jnp.array([1.0, number, 0.0]), state, records=jnp.array([0])))
    assert training.step == 0


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.int32])
def test_half_precision_is_refused(dtype: Any) -> None:
    for design in (prefix_design(), structured("banded", bands=3)):
        privatizer = Training(node_noise(design)).privatizer()
        state = privatizer.init(jnp.zeros(3))
        with pytest.raises(InputError, match=r"sums\[0\]: expected float32 or float64"):
            privatizer.update(jnp.zeros(3, dtype), state, records=[0])


def test_a_model_that_changes_its_size_is_refused() -> None:
    _, privatizer, state = small()
    _, state = privatizer.update(jnp.zeros(3), state, records=[0])
    with pytest.raises(InputError, match="parameters: expected the shapes"):
        privatizer.update(jnp.zeros(4), state, records=[1])


def test_another_clip_and_scaled_sums_are_refused() -> None:
    noise = node_noise(prefix_design())
    with pytest.raises(InputError, match=r"clip: expected 0\.5"):
        Training(noise, clip=1.0)
    training = Training(noise, clip=CLIP)
    for name, value in (
        ("l2_clip_norm", 1.0),
        ("normalize_by", 100.0),
        ("rescale_to_unit_norm", True),
    ):
        with pytest.raises(InputError, match=f"{name}: expected"):
            training.clipped_grad(loss, **{name: value})
    clipped = training.clipped_grad(lambda w, x: jnp.sum(w * x))
    found = clipped(jnp.zeros(2), jnp.array([[3.0, 4.0], [0.3, 0.0]]))
    np.testing.assert_allclose(found, [0.3 + 0.3, 0.4], rtol=1e-6)


def test_no_record_sees_the_labels_of_others() -> None:
    """One that is changed moves the sum by two clips at most, however the loss is called."""
    x, y = (part[:64] for part in a9a())
    other = np.append(1e4, y[1:])
    start, training = model(), Training(node_noise(prefix_design()), clip=CLIP)
    exact = flat(sums_by_hand(numbers(start), x, y))

    def of_both(params: Any, record: Any) -> Any:
        return loss(params, *record)

    def reversed_(features: Any, params: Any, labels: Any) -> Any:
        return loss(params, features, labels)

    clipped = training.clipped_grad
    for call in (
        lambda y: clipped(loss)(start, x, y),
        lambda y: jax.jit(clipped(loss))(start, x, y),
        lambda y: clipped(loss)(start, x, labels=y),
        lambda y: clipped(loss, batch_argnums=(1, 2))(start, x, y),
        lambda y: clipped(loss, microbatch_size=16)(start, x, y),
        lambda y: clipped(of_both)(start, (x, y)),
        lambda y: clipped(reversed_, argnums=1)(x, start, y),
        lambda y: clipped(loss, return_values=True)(start, x, y)[0],
    ):
        np.testing.assert_allclose(flat(call(y)), exact, atol=1e-4)
        assert np.linalg.norm(flat(call(other)) - exact) < 2 * CLIP * (1 + 1e-5)
    assert clipped(loss).sensitivity() == CLIP


def test_arguments_that_may_be_of_records_and_are_not_said_to_be_are_refused() -> None:
    x, y = (part[:64] for part in a9a())
    start, clipped = model(), Training(node_noise(prefix_design()), clip=CLIP).clipped_grad
    seen = "batch_argnums: expected argument 2 among them: it has 64 rows"
    for wrong in (1, (1,), [1]):
        for compiled in (False, True):
            sums = clipped(loss, batch_argnums=wrong)
            with pytest.raises(InputError, match=seen):
                (jax.jit(sums) if compiled else sums)(start, x, y)
    with pytest.raises(InputError, match=seen):
        clipped(lambda p, x, rest: loss(p, x, rest["y"]), batch_argnums=1)(
            start, x, {"temperature": 2.0, "y": y}
        )
    rows = "batch_argnums: expected a row a record in each of the arguments 1, 2, got"
    for labels in (y[None], y[:1], 1.0):
        with pytest.raises(InputError, match=rows):
            clipped(loss)(start, x, labels)

    def warm(params: Any, features: Any, labels: Any, temperature: Any) -> Any:
        return loss(params, features, labels) / temperature

    found = clipped(warm, batch_argnums=(1, 2))(start, x, y, 2.0)
    np.testing.assert_allclose(
        flat(found), flat(clipped(lambda *of: loss(*of) / 2)(start, x, y)), rtol=1e-6
    )


@pytest.mark.parametrize("kind", ["dense", "banded"])
@pytest.mark.parametrize("compiled", [False, True])
def test_sums_that_nobody_clipped_are_refused(kind: str, compiled: bool) -> None:
    """Gradients of a batch that are taken by jax.grad; a loss that is scaled after."""
    x, y = (part[:64] for part in a9a())
    start, training = model(), Training(node_noise(structured(kind, **STRUCTURES[kind])), clip=CLIP)
    privatizer, state = training.privatizer(), None
    update = jax.jit(privatizer.update) if compiled else privatizer.update
    raw = jax.grad(lambda params: 64 * loss(params, x, y))(start)
    right = training.clipped_grad(loss)(start, x, y)
    scaled = jax.tree.map(lambda leaf: 2.0**16 * leaf, right)
    assert np.linalg.norm(flat(raw)) > 64 * CLIP
    records, state = jnp.arange(64), privatizer.init(start)
    for wrong in (raw, scaled):
        with pytest.raises(RuntimeError if compiled else InputError, match="a sum of norm at most"):
            jax.block_until_ready(update(wrong, state, records=records))
    assert training.step == 0
    jax.block_until_ready(update(right, state, records=records))
    assert training.step == 1


def test_words_as_records_are_for_steps_that_are_not_compiled() -> None:
    _, privatizer, state = small()
    with pytest.raises(InputError, match="records: expected an array of integers"):
        jax.jit(lambda g, s: privatizer.update(g, s, records=["ann"]))(jnp.zeros(3), state)
    _, state = privatizer.update(jnp.zeros(3), state, records=["ann"])
    with pytest.raises(InputError, match="record 'ann' in steps 0, 1"):
        privatizer.update(jnp.zeros(3), state, records=["ann"])


# --- going on -----------------------------------------------------------------------------------


def test_restart_goes_on_with_the_same_noise(tmp_path: Path) -> None:
    design = prefix_design()
    whole = Loop(node_noise(design, record=tmp_path / "whole")).run()
    first = Loop(node_noise(design, record=tmp_path / "records"))
    first.run(until=5)
    (tmp_path / "state.json").write_text(json.dumps(first.training.state_dict()))
    params = jax.device_get(first.params)
    # Killed two steps after its checkpoint: those are computed again, to the same bits.
    assert [*first.steps(until=7)] == [6, 7]

    noise = node_noise(design, record=tmp_path / "records", resume=True)
    again = Loop(noise)
    again.training.load_state_dict(json.loads((tmp_path / "state.json").read_text()))
    again.params = jax.tree.map(jnp.asarray, params)
    again.state = again.optimizer.init(again.params)
    np.testing.assert_array_equal(again.run(), whole[5:])


def test_their_privatizer_goes_on_past_the_horizon_and_ours_does_not() -> None:
    """The fact that this adapter is there for: their dense one repeats its last noise."""
    design = prefix_design(epochs=2, separation=2)
    theirs = noise_addition.matrix_factorization_privatizer(
        design.noising_matrix, stddev=1.0, prng_key=jax.random.key(0)
    )
    sums = jnp.zeros(5)
    state, found = theirs.init(sums), []
    for _ in range(6):
        noisy, state = theirs.update(sums, state)
        found.append(np.asarray(noisy))
    np.testing.assert_array_equal(found[3], found[4])
    np.testing.assert_array_equal(found[3], found[5])


# --- random participation -------------------------------------------------------------------------


def test_batches_of_random_participation_are_those_of_the_node() -> None:
    source, training = random_noise(), Training(random_noise(), clip=CLIP)
    transform = training.privatizer()
    sums = jnp.zeros(40)
    state = transform.init(sums)
    with pytest.raises(InputError, match="batches: expected the batches of th(e|is) node"):
        transform.update(sums, state, records=[0])
    drawn = source.batches(12)
    assert any(len(batch) == 0 for batch in drawn)
    strategy = training.batch_selection()
    for t, batch in enumerate(strategy.batch_iterator(12)):
        np.testing.assert_array_equal(batch, drawn[t])
        with pytest.raises(InputError, match="records: expected the records drawn"):
            transform.update(sums, state, records=[*batch, 99])
        noisy, state = transform.update(sums, state)
        np.testing.assert_array_equal(noisy, source.step(t, 40, dtype=np.float32))
    with pytest.raises(InputError, match="seed: expected none"):
        next(training.batch_selection(seed=1).batch_iterator(12))
