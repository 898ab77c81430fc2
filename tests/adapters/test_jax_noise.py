"""Noise that JAX draws on a device: the bits of the processor, and nothing secret in a program."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import Plan, Secret
from noisedesign.noise.hidden import HashKeys, hidden
from noisedesign.noise.normals import MOST_SAMPLES, Normals
from tests.support import noise_reference
from tests.support.noise_plans import HORIZON, SECRET, drawn, plans, secrets

jax = pytest.importorskip("jax", reason="needs the package jax")
pytest.importorskip("jax_privacy", minversion="2", reason="needs the package jax_privacy 2")

import jax.numpy as jnp  # noqa: E402

from noisedesign.adapters import jax_noise  # noqa: E402
from noisedesign.adapters.jax_noise import Kind, Part, Told  # noqa: E402
from noisedesign.adapters.jax_privacy import State, Training  # noqa: E402

KEY = bytes(range(7, 39))
PLANS = plans()
DRAWN = sorted(set(PLANS) - {"dense", "full"})
WHITE = Kind("fresh", 0, ())


def told(plan: Plan, t: int) -> Told:
    """Of keys that are derived by plain Python."""
    found = secrets(plan)
    keys = [
        noise_reference.step_key(found[s.name], s.name, t, digest=plan.digest) for s in plan.streams
    ]
    return jax_noise.told_of(plan, t, keys)


def white(key: bytes, *, start: int, size: int, chunk: int | None = None) -> np.ndarray:
    """Normals of a key, in float64."""
    part = Part(start, size, np.dtype(np.float64))
    one = Told(jax_noise.words_of([key]), np.ones(1).view(np.uint32)[None], np.zeros(2, np.uint32))
    with jax.enable_x64(True):
        blank = jnp.zeros(size), jnp.zeros((0, size))
        return np.asarray(jax_noise.advanced(WHITE, part, one, np.int32(0), *blank, chunk=chunk)[0])


def steps(
    plan: Plan, dtype: Any, *, start: int, size: int, chunk: int | None = None
) -> Iterator[np.ndarray]:
    """Noise of every step of a slice, one after another."""
    kind, part = jax_noise.kind_of(plan), Part(start, size, np.dtype(dtype))
    assert kind is not None
    with jax.enable_x64(dtype == np.float64):
        kept = jnp.zeros((kind.rows, size), dtype)
        for t in range(plan.horizon):
            blank = jnp.zeros(size, dtype)
            found, kept = jax_noise.advanced(
                kind, part, told(plan, t), np.int32(t), blank, kept, chunk=chunk
            )
            assert found.dtype == dtype
            yield np.asarray(found)


# --- bits -----------------------------------------------------------------------------------------


def test_words_are_those_of_chacha20() -> None:
    """RFC 8439, appendix A.1: the first test vectors, by blocks 0 and 1 of a key of zeros."""
    first = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    second = "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
    with jax.enable_x64(True):
        found = np.asarray(
            jax.jit(jax_noise._words, static_argnums=2)(np.zeros(8, np.uint32), np.uint32(0), 2)
        )
    assert found[:4].tobytes().hex() == first
    assert found[8:12].tobytes().hex() == second


def test_normals_are_those_of_the_processor_to_the_bit() -> None:
    """Contracted products and sums would change some 9 in 1000 of them."""
    exact = np.empty(1 << 18)
    Normals(KEY).fill(exact, start=5)
    found = white(KEY, start=5, size=len(exact))
    assert np.count_nonzero(found.view(np.uint64) != exact.view(np.uint64)) == 0


@pytest.mark.parametrize("start", [0, 1, 6, 2**31 - 3, 2**34 - 9, MOST_SAMPLES - 40])
def test_slices_begin_anywhere(start: int) -> None:
    """Also across block 2^31, where a counter with a sign would turn."""
    exact = np.empty(40)
    Normals(KEY).fill(exact, start=start)
    np.testing.assert_array_equal(white(KEY, start=start, size=40), exact)
    np.testing.assert_array_equal(white(KEY, start=start, size=40, chunk=7), exact)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", DRAWN)
def test_noise_is_that_of_the_node_to_the_bit(name: str, dtype: Any) -> None:
    plan, source = PLANS[name], drawn(PLANS[name])
    size, start = 1003, 8 * 4099 + 5  # three chunks, and a last one that begins within the third
    for t, found in enumerate(steps(plan, dtype, start=start, size=size, chunk=300)):
        exact = source.step(t, size, dtype=dtype, start=start)
        assert np.count_nonzero(found != exact) == 0, (name, t)


@pytest.mark.parametrize("name", DRAWN)
def test_noise_is_that_of_plain_python(name: str) -> None:
    """Which shares no line with the package."""
    plan, rounded = PLANS[name], noise_reference.single
    exact = [noise_reference.noise(plan, secrets(plan), 11 + i, rounded) for i in range(2)]
    found = np.array([*steps(plan, np.float32, start=11, size=2)])
    np.testing.assert_array_equal(found.T, np.array(exact, np.float32))


def test_chunks_and_precision_of_jax_change_nothing() -> None:
    plan = PLANS["seeds, banded"]
    whole = np.array([*steps(plan, np.float32, start=3, size=500)])
    for chunk in (8, 64, 499):
        found = np.array([*steps(plan, np.float32, start=3, size=500, chunk=chunk)])
        np.testing.assert_array_equal(found, whole)
    with jax.enable_x64(True):
        found = np.array([*steps(plan, np.float32, start=3, size=500)])
        np.testing.assert_array_equal(found, whole)


def test_kinds_of_noise_that_the_host_draws() -> None:
    assert jax_noise.kind_of(PLANS["dense"]) is None
    assert jax_noise.kind_of(PLANS["full"]) is None


@pytest.mark.parametrize(
    ("name", "how"),
    [("banded-inverse", "eager"), ("seeds, banded", "compiled"), ("signed-blt", "scan")],
)
def test_updates_give_the_noise_of_the_node(name: str, how: str) -> None:
    """Parts of two precisions among them, as a model with some numbers in float64 has."""
    plan, direct = PLANS[name], drawn(PLANS[name])
    with jax.enable_x64(True):
        training = Training(drawn(plan))
        privatizer = training.privatizer()
        sums = {
            "a": jnp.zeros((2, 3), jnp.float32),
            "b": jnp.zeros(4, jnp.float32),
            "c": jnp.zeros(5, jnp.float64),
            "d": jnp.zeros((), jnp.float32),
        }
        state = privatizer.init(sums)

        def body(state: Any, batch: Any) -> Any:
            noisy, state = privatizer.update(sums, state, records=batch)
            return state, noisy

        batches = jnp.arange(HORIZON)[:, None]
        if how == "scan":
            state, rows = jax.jit(lambda s: jax.lax.scan(body, s, batches))(state)
        else:
            once, each = (jax.jit(body) if how == "compiled" else body), []
            for batch in batches:
                state, noisy = once(state, batch)
                each.append(noisy)
            rows = jax.tree.map(lambda *parts: jnp.stack(parts), *each)
        jax.block_until_ready(rows)
    assert training.step == HORIZON
    place = 0
    for leaf in ("a", "b", "c", "d"):
        size, dtype = sums[leaf].size, sums[leaf].dtype
        for t in range(HORIZON):
            exact = direct.step(t, size, dtype=dtype, start=place)
            np.testing.assert_array_equal(np.ravel(rows[leaf][t]), exact)
        place += size


def test_sums_that_are_not_zero_get_one_rounding() -> None:
    plan = PLANS["banded"]
    sums = np.random.default_rng(0).normal(size=100).astype(np.float32) / 100
    training = Training(drawn(plan))
    privatizer = training.privatizer()
    noisy, _ = privatizer.update(jnp.asarray(sums), privatizer.init(sums), records=[0])
    exact = sums + drawn(plan).step(0, 100, dtype=np.float32)
    np.testing.assert_array_equal(noisy, exact)


# --- what noise hides -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_noise_hides_is_hashed_as_on_the_host(dtype: Any) -> None:
    keys = HashKeys(KEY, KEY[::-1])
    sums = np.random.default_rng(2).normal(size=20_001).astype(dtype)
    exact = hidden([sums], keys=keys, start=77)
    part = Part(77, sums.size, sums.dtype)
    words = jax_noise.words_of(keys)
    with jax.enable_x64(dtype == np.float64):
        for chunk in (64, 8192, None):  # sums of 8192 numbers ended jaxlib 0.10.2
            numbers = jax_noise.hashed(part, words, jnp.asarray(sums), chunk=chunk)
            found = jax_noise.hidden_of(part, *numbers)
            assert (found.narrow, found.wide) == (exact.narrow, exact.wide)
            assert (found.first, found.second) == (exact.first, exact.second)
            assert found.norm == pytest.approx(exact.norm, rel=1e-13)


def test_the_record_is_that_of_the_host(tmp_path: Path) -> None:
    """A step on the host after one on the device, of the same sums, is the same step."""
    plan, path = PLANS["banded"], tmp_path / "records"
    from noisedesign.noise import Record

    sums = {"a": np.full((5, 3), 0.01, np.float32), "b": np.full(4, -0.02, np.float32)}
    training = Training(drawn(plan, record=Record(path)))
    privatizer = training.privatizer()
    jax.block_until_ready(privatizer.update(sums, privatizer.init(sums), records=[1, 2]))
    again = drawn(plan, record=Record(path), resume=True)
    assert again.steps == {0}
    again.add_([sums["a"].copy(), sums["b"].copy()], 0, records=[1, 2])
    with pytest.raises(InputError, match="other data at step 0"):
        again.add_([sums["a"].copy(), np.zeros(4, np.float32)], 0, records=[1, 2])


# --- secrets --------------------------------------------------------------------------------------


def words_in(text: str, key: bytes) -> list[str]:
    """Words of a key that a program has, as numbers or in hexadecimal digits."""
    numbers = [int(word) for word in np.frombuffer(key, "<u4")]
    shown = [key.hex(), key.hex().upper(), *map(str, numbers)]
    shown += [str(number - 2**32) for number in numbers if number >= 2**31]
    return [one for one in shown if one in text]


def test_no_compiled_program_has_a_secret_in_it() -> None:
    """Neither as it is written nor as it is compiled: programs are kept in caches on disk."""
    plan = PLANS["seeds, banded"]
    training = Training(drawn(plan))
    privatizer, sums = training.privatizer(), jnp.zeros(50)
    state = privatizer.init(sums)
    keys = [*training.noise.hash_keys, SECRET.value]
    for t in range(HORIZON):
        keys += [key.tobytes() for key in told(plan, t).keys]

    def leaky(x: Any) -> Any:
        return x + jnp.asarray(np.frombuffer(keys[0], np.uint32)).sum()

    programs = [
        jax.jit(privatizer.update).lower(sums, state, records=jnp.arange(3)),
        jax.jit(privatizer.init).lower(sums),
    ]
    assert words_in(jax.jit(leaky).lower(jnp.uint32(1)).as_text(), keys[0])
    for program in programs:
        for text in (program.as_text(), program.compile().as_text()):
            assert "custom_call" in text or "custom-call" in text  # the host is asked
            assert not [word for key in keys for word in words_in(text, key)]


def test_states_are_of_one_run() -> None:
    plan, sums = PLANS["banded"], jnp.zeros(20)
    mine = Training(drawn(plan)).privatizer()
    other = drawn(plan)
    other = type(other)(plan, secret=Secret(KEY), seeds={}, record=None, resume=False)
    theirs = Training(other).privatizer().init(sums)
    for update in (mine.update, jax.jit(mine.update)):
        with pytest.raises((InputError, RuntimeError), match="state: expected a state of this run"):
            jax.block_until_ready(update(sums, theirs, records=jnp.array([0])))
    blank = jax.tree.map(jnp.zeros_like, mine.init(sums))
    with pytest.raises(InputError, match="state: expected a state of this run"):
        mine.update(sums, blank, records=[0])


def test_a_state_of_another_model_is_refused() -> None:
    privatizer = Training(drawn(PLANS["banded"])).privatizer()
    for other in (jnp.zeros(21), {"a": jnp.zeros(10), "b": jnp.zeros(11)}):
        with pytest.raises(InputError, match="parameters: expected the shapes and precision"):
            privatizer.update(other, privatizer.init(jnp.zeros(20)), records=[0])


def test_a_state_without_the_noise_before_is_refused() -> None:
    """As one that came from a machine whose host draws: noise would have another covariance."""
    privatizer, sums = Training(drawn(PLANS["banded"])).privatizer(), jnp.zeros(20)
    _, state = privatizer.update(sums, privatizer.init(sums), records=[0])
    with pytest.raises(InputError, match="parameters: expected the shapes and precision"):
        privatizer.update(sums, state._replace(kept=()), records=[1])


def test_models_in_half_precision_have_sums_in_float32() -> None:
    privatizer = Training(drawn(PLANS["banded"])).privatizer()
    state = privatizer.init(jnp.zeros(20, jnp.bfloat16))
    noisy, _ = privatizer.update(jnp.zeros(20), state, records=[0])
    exact = drawn(PLANS["banded"]).step(0, 20, dtype=np.float32)
    np.testing.assert_array_equal(noisy, exact)


# --- devices --------------------------------------------------------------------------------------


def test_a_device_with_other_bits_is_not_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that contracts products and sums has: the host draws, and says so once."""
    right = jax_noise.advanced

    def contracted(*args: Any, **kwargs: Any) -> Any:
        sums, kept = right(*args, **kwargs)
        return jnp.nextafter(sums, jnp.inf), kept

    for broken in (contracted, None):
        jax_noise._works.cache_clear()
        monkeypatch.setattr(jax_noise, "advanced", broken)  # None: it cannot compile
        training = Training(drawn(PLANS["banded"]))
        with pytest.warns(UserWarning, match="Noise is drawn on the host"):
            privatizer = training.privatizer()
        sums = jnp.zeros(30)
        for t, update in enumerate((privatizer.update, jax.jit(privatizer.update))):
            state = privatizer.init(sums)
            assert isinstance(state, State)
            assert state.kept == ()
            noisy, _ = jax.block_until_ready(update(sums, state, records=jnp.array([t])))
            exact = drawn(PLANS["banded"]).step(t, 30, dtype=np.float32)
            np.testing.assert_array_equal(noisy, exact)
        Training(drawn(PLANS["banded"])).privatizer()  # without a second warning
    jax_noise._works.cache_clear()
    monkeypatch.setattr(jax_noise, "advanced", right)
    assert jax_noise.works()


def test_several_models_at_once_are_refused_by_name() -> None:
    privatizer = Training(drawn(PLANS["banded"])).privatizer()
    state = privatizer.init(jnp.zeros(3))
    with pytest.raises(InputError, match="sums: expected one model, got 2 at once"):
        jax.vmap(lambda g: privatizer.update(g, state, records=jnp.array([0])))(jnp.zeros((2, 3)))


def run_alone(code: str, *, devices: int = 1, **names: Any) -> subprocess.CompletedProcess[str]:
    """In a process of its own, of so many devices."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(sys.path)}
    given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    return subprocess.run(
        [sys.executable, "-c", given + textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


SHARDED = """
    import jax, numpy as np, jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec as P
    from noisedesign.adapters.jax_privacy import Training
    from tests.support.noise_plans import drawn, plans

    plan, direct = plans()["banded"], drawn(plans()["banded"])
    assert len(jax.devices()) == 2
    for kind in (jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit):
        mesh = jax.make_mesh((2,), ("x",), axis_types=(kind,))
        sums = {
            "a": jax.device_put(jnp.zeros((6, 10)), NamedSharding(mesh, P(None, "x"))),
            "b": jax.device_put(jnp.zeros(8), NamedSharding(mesh, P("x"))),
        }
        training = Training(drawn(plan))
        privatizer = training.privatizer()
        state, update = privatizer.init(sums), jax.jit(privatizer.update)
        for t in range(4):
            noisy, state = update(sums, state, records=jnp.array([t]))
            if kind == jax.sharding.AxisType.Explicit:
                assert noisy["a"].sharding.is_equivalent_to(sums["a"].sharding, 2)
            exact = direct.step(t, 68, dtype=np.float32)
            found = np.concatenate([np.ravel(noisy["a"]), noisy["b"]])
            assert np.count_nonzero(found != exact) == 0, (kind, t)
        assert training.step == 4
    print("sharded")

    # Every device for itself would add noise of its own to a part of the sums.
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    privatizer = Training(drawn(plan)).privatizer()
    state = privatizer.init(jnp.zeros(4))
    alone = jax.shard_map(
        lambda g: privatizer.update(g, state, records=jnp.array([0]))[0],
        mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False,
    )
    try:
        jax.block_until_ready(jax.jit(alone)(jnp.zeros(8)))
    except Exception as error:
        assert "state: expected the state of step 1" in str(error), error
        print("refused")
"""


def test_sums_over_two_devices_get_the_noise_of_one() -> None:
    found = run_alone(SHARDED, devices=2)
    assert found.stdout.split() == ["sharded", "refused"], found.stderr


# --- going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["banded", "signed-blt"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_first_state_in_the_middle_of_a_run(name: str, compiled: bool, tmp_path: Path) -> None:
    """It draws the noise of the steps before again, also where ``init`` is compiled."""
    from noisedesign.noise import Record

    plan, sums, path = PLANS[name], jnp.zeros(40), tmp_path / "records"
    first = Training(drawn(plan, record=Record(path)))
    privatizer = first.privatizer()
    state = privatizer.init(sums)
    for t in range(4):
        _, state = privatizer.update(sums, state, records=[t])
    again = Training(drawn(plan, record=Record(path), resume=True))
    again.load_state_dict(first.state_dict())
    privatizer = again.privatizer()
    begun = (jax.jit(privatizer.init) if compiled else privatizer.init)(sums)
    for one, other in zip(jax.tree.leaves(begun), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one, other)
    noisy, _ = privatizer.update(sums, begun, records=[4])
    np.testing.assert_array_equal(noisy, drawn(plan).step(4, 40, dtype=np.float32))


KILLED = """
    import os, signal
    import jax, jax.numpy as jnp
    from noisedesign.adapters.jax_privacy import Training
    from noisedesign.noise import Record
    from tests.support.noise_plans import drawn, plans

    source = drawn(plans()["banded"], record=Record(path))
    training = Training(source)
    privatizer = training.privatizer()
    hide = source.hide

    def hidden(t, *args, **kwargs):
        hide(t, *args, **kwargs)
        if t == 3:  # recorded, and before noise is drawn
            os.kill(os.getpid(), signal.SIGKILL)

    source.hide = hidden
    update = jax.jit(privatizer.update)
    sums = jnp.full(40, 0.01)
    state = privatizer.init(sums)
    for t in range(7):
        _, state = jax.block_until_ready(update(sums, state, records=jnp.array([t])))
"""


def test_a_run_that_was_killed_goes_on_with_the_same_noise_or_skips(tmp_path: Path) -> None:
    from noisedesign.noise import Record

    plan, path = PLANS["banded"], tmp_path / "records"
    assert run_alone(KILLED, path=str(path)).returncode == -9
    sums, direct = np.full(40, 0.01, np.float32), drawn(plan)

    def resumed() -> Training:
        training = Training(drawn(plan, record=Record(path), resume=True))
        assert training.step == 4
        return training

    training = resumed()
    training.step = 3  # as a checkpoint before the step says
    privatizer = training.privatizer()
    state = privatizer.init(jnp.zeros(40))
    update = jax.jit(privatizer.update)
    with pytest.raises(RuntimeError, match="other data at step 3"):
        jax.block_until_ready(update(jnp.full(40, 0.011), state, records=jnp.array([3])))
    noisy, _ = update(jnp.asarray(sums), state, records=jnp.array([3]))
    np.testing.assert_array_equal(noisy, sums + direct.step(3, 40, dtype=np.float32))

    training = resumed()
    training.step = 3
    assert training.skip_used() == range(3, 4)
    privatizer = training.privatizer()
    noisy, _ = privatizer.update(jnp.zeros(40), privatizer.init(jnp.zeros(40)), records=[4])
    np.testing.assert_array_equal(noisy, direct.step(4, 40, dtype=np.float32))


def test_memory_is_what_is_kept_and_a_chunk() -> None:
    """Beside its arguments and results a program has less than a tenth of an array of the model,
    and rows that are kept are written over."""
    plan, size = PLANS["banded"], 1 << 22
    privatizer, sums = Training(drawn(plan)).privatizer(), jnp.zeros(size)
    state, row = privatizer.init(sums), 4 * size
    update = jax.jit(privatizer.update, donate_argnums=1)
    used = update.lower(sums, state, records=jnp.arange(3)).compile().memory_analysis()
    assert used.temp_size_in_bytes < row / 10
    assert used.alias_size_in_bytes >= plan.filter.rows * row
