"""Noise on arrays that a loop sends, with numpy alone."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.adapters.update import NoisyUpdate
from tests.support import ROOT
from tests.support.adapters import audit_noise, check_noise, designed_covariance
from tests.support.trainers import CLIP, node_noise, prefix_design, random_noise

EVERY = {"epochs": 6, "separation": 1}
"""A design for a node that sends in every round."""


def of_node(number: int = 1, **kwargs: Any) -> NoisyUpdate:
    return NoisyUpdate(node_noise(prefix_design(**EVERY), number, **kwargs), clip=CLIP, unit="node")


def of_records(**kwargs: Any) -> NoisyUpdate:
    return NoisyUpdate(node_noise(prefix_design(), **kwargs), clip=CLIP, unit="record")


def arrays(*values: float, dtype: Any = np.float64) -> list[np.ndarray]:
    return [
        np.full(shape, value, dtype) for shape, value in zip([(2, 3), (4,)], values, strict=True)
    ]


def flat(found: Any) -> np.ndarray:
    found = found.values() if isinstance(found, dict) else found
    return np.concatenate([np.ravel(array) for array in found])


def exact(step: int, d: int = 10, dtype: Any = np.float64) -> np.ndarray:
    return node_noise(prefix_design(**EVERY)).step(step, d, dtype=dtype)


# --- a node as a whole ---


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_update_is_clipped_over_all_arrays_and_gets_noise(dtype: Any) -> None:
    """(3, ..., 3, 4, ..., 4) of 6 and 4 entries is sqrt(54 + 64) long; a short one stays."""
    noisy, given = of_node(), arrays(3.0, 4.0, dtype=dtype)
    sent = noisy(given)
    assert [array.dtype for array in sent] == [dtype, dtype]
    expected = np.repeat([3.0, 4.0], [6, 4]) * CLIP / 118**0.5 + exact(0, dtype=dtype)
    np.testing.assert_allclose(flat(sent), expected, rtol=2e-6)
    np.testing.assert_array_equal(flat(given), np.repeat([3.0, 4.0], [6, 4]))
    short = noisy(arrays(0.1, 0.1, dtype=dtype))
    np.testing.assert_allclose(flat(short), 0.1 + exact(1, dtype=dtype), rtol=1e-6)


def test_a_model_is_what_came_and_a_clipped_update_and_noise() -> None:
    noisy, received = of_node(), arrays(7.0, -2.0)
    sent = noisy.model(received, arrays(10.0, 2.0))
    update = np.repeat([3.0, 4.0], [6, 4]) * CLIP / 118**0.5
    np.testing.assert_allclose(flat(sent), flat(received) + update + exact(0), rtol=1e-6)


def test_arrays_by_name_come_in_any_order() -> None:
    """A framework that lists them otherwise the next time would put noise of one on another."""
    one, two = of_node(), of_node()
    for _ in range(2):
        a, b = arrays(0.1, 0.2)
        first, second = one({"a": a, "b": b}), two({"b": b, "a": a})
        assert (list(first), list(second)) == (["a", "b"], ["b", "a"])
        for name in "ab":
            np.testing.assert_array_equal(first[name], second[name])
    for wrong in ({"a": a, "c": b}, {"a": a}, [a, b]):
        with pytest.raises(InputError, match="expected the names of the steps before: a, b"):
            one(wrong)
    sent = of_node().model({"a": a, "b": b}, {"b": b, "a": a})
    assert list(sent) == ["b", "a"]


def test_what_is_clipped_is_no_longer_than_the_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    """In exact arithmetic, of the numbers as they are rounded; sizes whose squares overflow too."""
    rng = np.random.default_rng(0)
    clipped: list[np.ndarray] = []
    for dtype, size in itertools.product((np.float32, np.float64), (1e-30, 1.0, 1e30)):
        noisy = of_node()
        monkeypatch.setattr(noisy.run, "add_", lambda found, **_: clipped.extend(found))
        for d in (1, 2, 50, 50, 50, 1000):
            clipped.clear()
            noisy([(size * rng.normal(size=d)).astype(dtype), np.zeros((), dtype)])
            square = sum(Fraction(float(u)) ** 2 for array in clipped for u in array.ravel())
            assert square <= Fraction(CLIP) ** 2
            assert size < 1 or square > 0.9 * CLIP**2 or d < 3


def drawn(d: int, number: int = 1) -> np.ndarray:
    """Noise of all rounds, as it is in what a node sends."""
    noisy = of_node(number)
    move = np.zeros(d)
    move[0] = 3.0
    sent = np.array([flat(noisy([move])) for _ in range(noisy.run.horizon)])
    sent[:, 0] -= CLIP
    return sent


def test_noise_over_time_is_that_of_the_design() -> None:
    """Correlated, of sums; and of a node that sends in every round, independent."""
    design, noisy = prefix_design(), of_records()
    assert np.abs(np.tril(design.strategy, -1)).max() > 0.1 * design.strategy[0, 0]
    batches = noisy.batches(12)
    sent = [flat(noisy([np.zeros(4000)], records=batches[t])) for t in range(12)]
    check_noise(designed_covariance(design), np.array(sent))
    check_noise(designed_covariance(prefix_design(**EVERY)), drawn(4000))


def test_audit_does_not_exceed_mu() -> None:
    numbers = itertools.count(100)
    report = audit_noise(prefix_design(**EVERY), lambda d: drawn(d, next(numbers)), runs=20_000)
    assert not report.exceeds
    assert report.close


def test_a_node_takes_part_as_often_as_designed() -> None:
    """Twice in four rounds, two apart: it may leave rounds out, and not come sooner or again."""
    design = prefix_design(epochs=2, separation=2)
    for rounds, refused in (((0, 2), 3), ((1, 3), None), ((0,), 1), ((3,), None)):
        noisy = NoisyUpdate(node_noise(design), clip=CLIP, unit="node")
        for step in rounds:
            assert flat(noisy(arrays(0.1, 0.1), step=step)).size == 10
        if refused is not None:
            with pytest.raises(InputError, match="got record 0"):
                noisy(arrays(0.1, 0.1), step=refused)


def test_rounds_that_are_named_have_their_own_noise() -> None:
    """One that is sent again has the same, on the same update only."""
    noisy = of_node()
    for step in (0, 3, 5, 3):
        np.testing.assert_allclose(flat(noisy(arrays(0.1, 0.1), step=step)), 0.1 + exact(step))
        assert noisy.run.step == step + 1
    with pytest.raises(InputError, match="other data at step 3"):
        noisy(arrays(0.1, 0.2), step=3)
    assert noisy.run.step == 4  # as before
    for wrong in (6, -1, 1.5, True):
        with pytest.raises(InputError, match="step"):
            noisy(arrays(0.1, 0.1), step=wrong)


# --- records ---


def test_sums_of_records_get_noise_as_they_are() -> None:
    noisy = of_records()
    batches = noisy.batches(10)
    for t in range(noisy.run.horizon):
        (sent,) = noisy([np.full(3, 0.1)], records=batches[t])
        np.testing.assert_array_equal(sent, 0.1 + node_noise(prefix_design()).step(t, 3))
    with pytest.raises(InputError, match="step: expected 0 to 11"):
        noisy([np.full(3, 0.1)], records=[])


def test_batches_that_are_drawn_are_those_of_the_secret() -> None:
    noisy = NoisyUpdate(random_noise(), clip=CLIP, unit="record")
    batches = noisy.batches(9)
    for t in range(3):
        noisy([np.zeros(2)], records=batches[t])
    with pytest.raises(InputError, match="records: .*drawn for step 3"):
        noisy([np.zeros(2)], records=[*batches[3], 99])
    with pytest.raises(InputError, match="participation: expected one in which the loop may say"):
        NoisyUpdate(random_noise(), clip=CLIP, unit="node")


# --- misuse ---


def test_misuse_is_refused_before_anything_is_drawn() -> None:
    node, records = of_node(), of_records()
    x = [np.full(3, 0.1)]
    with pytest.raises(InputError, match="records: expected none: the update of a node"):
        node(x, records=[0])
    with pytest.raises(InputError, match="records: expected those whose clipped gradients"):
        records(x)
    with pytest.raises(InputError, match='unit: expected "node"'):
        records.model(x, x)
    with pytest.raises(InputError, match="a sum"):  # of two records, longer than two clips
        records([np.full(3, 1.0)], records=["a", "b"])
    for wrong in (np.ones(3), [1.0], [np.ones(3, np.float16)], [np.ones(3, int)], "abc", None):
        with pytest.raises(InputError, match="arrays"):
            node(wrong)
    for values in (np.nan, np.inf):
        with pytest.raises(InputError, match="finite"):
            node([np.full(3, values)])
    before = [np.ones(3), np.ones(2)]
    for after in ([np.ones(3)], [np.ones(3), np.ones(3)], [np.ones(3), np.ones(2, int)]):
        with pytest.raises(InputError, match="trained"):
            node.model(before, after)
    assert node.run.step == records.run.step == 0
    assert node.run.noise.steps == records.run.noise.steps == frozenset()
    node(x)
    with pytest.raises(InputError, match="shapes"):
        node(before)
    with pytest.raises(InputError, match="clip: expected 0.5"):
        NoisyUpdate(node_noise(prefix_design(**EVERY)), clip=1.0, unit="node")
    with pytest.raises(InputError, match="unit"):
        NoisyUpdate(node_noise(prefix_design(**EVERY)), clip=CLIP, unit="client")
    with pytest.raises(InputError, match="noise"):
        NoisyUpdate(prefix_design(), clip=CLIP, unit="node")  # type: ignore[arg-type]


def test_the_promise_is_that_of_the_whole_run() -> None:
    assert of_node().epsilon == 6.0


# --- going on ---


def test_a_state_goes_on_with_names_and_attendance() -> None:
    noisy = of_node()
    named = dict(zip("ab", arrays(0.1, 0.2), strict=True))
    noisy(named)
    again = of_node()
    again.load_state_dict(json.loads(json.dumps(noisy.state_dict())))
    np.testing.assert_array_equal(flat(again(named)), flat(noisy(named)))
    with pytest.raises(InputError, match="names"):
        again(list(named.values()))
    for wrong in ({}, None, {"run": {}, "names": None}, {**noisy.state_dict(), "run": 3}):
        with pytest.raises(InputError, match="state"):
            of_node().load_state_dict(wrong)


KILLED = """
import sys
import numpy as np
from pathlib import Path
from tests.adapters.test_update import of_node

where = Path("record.sqlite3")
noisy = of_node(record=where, resume=where.exists())
print("next", noisy.run.step, flush=True)
for t in range(noisy.run.step, 6):
    if sys.argv[1] == "again":
        np.save(f"again-{t - 1}.npy", noisy([np.full(8, t - 1.0)], step=t - 1)[0])
        sys.argv[1] = ""
    np.save(f"{t}.npy", noisy([np.full(8, float(t))], step=t)[0])
    print("sent", t, flush=True)
    if t == 3 and sys.argv[1]:
        sys.stdin.read()
"""


def test_a_killed_node_goes_on_with_the_noise_it_had(tmp_path: Path) -> None:
    """kill -9 after round 3: that round sent again has the same noise, and 4 and 5 theirs."""
    command = [sys.executable, "-c", KILLED]
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'lab'}"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, "kill"], cwd=tmp_path, env=variables, **pipes) as first:
        assert first.stdout is not None
        assert any(line == b"sent 3\n" for line in first.stdout)
        first.send_signal(signal.SIGKILL)
    done = subprocess.run(
        [*command, "again"], cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("next 4\n")
    np.testing.assert_array_equal(np.load(tmp_path / "again-3.npy"), np.load(tmp_path / "3.npy"))
    for t in range(6):
        clipped = np.full(8, t * min(1.0, CLIP / max(t * 8**0.5, 1e-9)))
        np.testing.assert_allclose(np.load(tmp_path / f"{t}.npy"), clipped + exact(t, 8), rtol=1e-5)
