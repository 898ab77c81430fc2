"""The privatizer for JAX Privacy: whose noise it adds, under which key, and when it stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.files.exports.jax_privacy import privatizer, read
from noisedesign.tasks.export import export
from tests.support.small_designs import TARGET, time_design

BITS = np.arange(2, dtype=np.uint32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Four steps."""
    return export(time_design(privacy=TARGET), to="jax-privacy", path=tmp_path / "C.npz")[0]


@pytest.fixture
def jax() -> Any:
    pytest.importorskip("jax_privacy", reason="JAX Privacy is not installed: .[bench] brings it")
    return pytest.importorskip("jax")


def key_of(jax: Any, bits: int = 0) -> Any:
    return jax.random.wrap_key_data(BITS + np.uint32(bits))


# --- without JAX ----------------------------------------------------------------------------


def test_a_key_is_required(path: Path) -> None:
    with pytest.raises(TypeError, match="key"):
        privatizer(path, steps=4)  # type: ignore[call-arg]


@pytest.mark.parametrize("key", [None, 0, 123456789, True, "secret", b"secret..", [1, 2]])
def test_what_is_no_key_is_refused_and_not_repeated(path: Path, key: Any) -> None:
    with pytest.raises(InputError, match="fresh and secret, another one at every node") as error:
        privatizer(path, steps=4, key=key)
    assert error.value.field == "key"
    assert error.value.got == f"of type {type(key).__name__}"


def test_a_run_past_the_horizon_is_refused_before_it_starts(path: Path) -> None:
    with pytest.raises(InputError, match="steps: expected at most 4"):
        privatizer(path, steps=5, key=None)


def test_without_a_target_a_factor_is_required(tmp_path: Path) -> None:
    (path,) = export(time_design(), to="jax-privacy", path=tmp_path / "free.npz")
    with pytest.raises(InputError, match=r"^multiply_by: .*nobody is protected yet"):
        privatizer(path, steps=4, key=None)
    for factor in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="^multiply_by: expected"):
            privatizer(path, steps=4, key=None, multiply_by=factor)
    with pytest.raises(InputError, match="^key: "):
        privatizer(path, steps=4, key=None, multiply_by=2.0)


# --- with it --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "got"),
    [
        (lambda jax: jax.random.split(jax.random.key(0), 3), "key<fry> (3,)"),
        (lambda jax: jax.random.PRNGKey(7), "uint32 (2,)"),
        (lambda jax: np.uint32(7), "uint32"),
        (lambda jax: BITS + 7, "uint32 (2,)"),
        (lambda jax: jax.numpy.ones(()), "float32"),
    ],
)
def test_several_keys_and_bare_numbers_are_refused(
    path: Path, jax: Any, key: Any, got: str
) -> None:
    with pytest.raises(InputError, match="a JAX PRNG key") as error:
        privatizer(path, steps=4, key=key(jax))
    assert error.value.field == "key"
    assert error.value.got.endswith(f" {got}")


def run(jax: Any, noise: Any, steps: int, gradient: Any, *, compiled: bool = False) -> list[Any]:
    update = jax.jit(noise.update) if compiled else noise.update
    state, found = noise.init(gradient), []
    for _ in range(steps):
        noisy, state = update(gradient, state)
        found.append(jax.device_get(noisy))
    return found


@pytest.mark.parametrize("compiled", [False, True])
def test_noise_is_that_of_the_design(path: Path, jax: Any, compiled: bool) -> None:
    """Of 40,000 coordinates: entries of the covariance within five standard errors."""
    noising_matrix, stddev = read(path, steps=4)
    noise = privatizer(path, steps=4, key=key_of(jax))
    found = np.array(run(jax, noise, 4, np.zeros(40_000, np.float32), compiled=compiled), float)
    wanted = stddev**2 * noising_matrix @ noising_matrix.T
    spread = np.sqrt(np.outer(wanted.diagonal(), wanted.diagonal()) + wanted**2)
    np.testing.assert_array_less(np.abs(found @ found.T / 40_000 - wanted), 5 * spread / 200)


def test_it_is_the_real_privatizer(path: Path, jax: Any) -> None:
    from jax_privacy import noise_addition

    noising_matrix, stddev = read(path, steps=4)
    theirs = noise_addition.matrix_factorization_privatizer(
        noising_matrix, stddev=stddev, prng_key=key_of(jax)
    )
    gradient = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}
    ours = run(jax, privatizer(path, steps=4, key=key_of(jax)), 4, gradient)
    for a, b in zip(ours, run(jax, theirs, 4, gradient), strict=True):
        jax.tree.map(np.testing.assert_array_equal, a, b)


def test_another_key_is_other_noise(path: Path, jax: Any) -> None:
    gradient = np.zeros(100, np.float32)
    first, second, again = (
        run(jax, privatizer(path, steps=4, key=key_of(jax, bits)), 4, gradient)
        for bits in (0, 1, 0)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(np.subtract(first, second)).min() > 0


def test_an_update_too_many_raises(path: Path, jax: Any) -> None:
    gradient = np.zeros(3, np.float32)
    for steps in (2, 4):
        noise = privatizer(path, steps=steps, key=key_of(jax))
        assert len(run(jax, noise, steps, gradient)) == steps
        with pytest.raises(InputError, match=rf"steps: .* {steps} updates.*got update {steps + 1}"):
            run(jax, noise, steps + 1, gradient)
        assert len(run(jax, noise, steps, gradient, compiled=True)) == steps
        with pytest.raises(RuntimeError, match=rf"steps: .*got update {steps + 1}"):
            run(jax, noise, steps + 1, gradient, compiled=True)


def test_an_update_too_many_raises_in_a_compiled_loop(path: Path, jax: Any) -> None:
    gradient = np.zeros(3, np.float32)
    noise = privatizer(path, steps=4, key=key_of(jax))

    def body(state: Any, _: Any) -> Any:
        noisy, state = noise.update(gradient, state)
        return state, noisy

    def loop(length: int) -> Any:
        found = jax.lax.scan(body, noise.init(gradient), None, length=length)
        return jax.block_until_ready(found)

    np.testing.assert_allclose(loop(4)[1], run(jax, noise, 4, gradient), rtol=1e-6)
    with pytest.raises(RuntimeError, match="got update 5"):
        loop(5)


def test_gradients_of_few_digits_get_noise_of_many(path: Path, jax: Any) -> None:
    noise = privatizer(path, steps=4, key=key_of(jax))
    fine = run(jax, noise, 4, np.zeros(50, np.float32))
    coarse = run(jax, noise, 4, jax.numpy.zeros(50, jax.numpy.bfloat16))
    for a, b in zip(fine, coarse, strict=True):
        np.testing.assert_array_equal(a.astype(jax.numpy.bfloat16), b)
    with jax.enable_x64(True):
        exact = run(jax, privatizer(path, steps=4, key=key_of(jax)), 4, np.zeros(50))
    assert exact[0].dtype == np.float64
    assert (exact[0] != exact[0].astype(np.float32)).any()
