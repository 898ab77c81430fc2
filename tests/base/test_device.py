"""The solver of diagonal budgets on other array libraries, and devices that are not there."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import array_api_compat.numpy
import array_api_strict
import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.device import CPU, Device, cholesky_of, device_of, namespace, on_host
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import lower_bound
from noisedesign.certify.program import Program, diagonal_dual
from noisedesign.design import backends
from noisedesign.design.solve import solve
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.disjoint.solver import active_caps, diagonal, fixed_epoch, smoothed
from noisedesign.families.disjoint.solver.square_roots import singular_values
from noisedesign.problem.problem import SpaceProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, single
from tests.support import oracles
from tests.support.array_devices import NEEDS_NUMPY_2, STRICT, gpu, strict_on_host, torch_on_cpu
from tests.support.command_line import CAPPED, EPOCHS, RING, call, write
from tests.support.without_extras import ELSEWHERE

pytestmark = NEEDS_NUMPY_2

FLORENTINE = oracles.metropolis(nx.florentine_families_graph())

PROBLEMS: dict[str, SpaceProblem | TimeProblem] = {
    "florentine": SpaceProblem(mixing=FLORENTINE),
    "budgets": SpaceProblem(mixing=FLORENTINE, budget=np.linspace(1, 3, 15)),
    "ring-5": SpaceProblem(mixing=oracles.metropolis(nx.cycle_graph(5))),
    "star, singular, slack budgets": SpaceProblem(mixing=oracles.metropolis(nx.star_graph(9))),
    "prefix-30": TimeProblem.prefix(participation=single(30)),
    "one": SpaceProblem(mixing=np.ones((1, 1))),
}


@pytest.fixture(params=["strict", "torch", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Device:
    if request.param == "strict":
        for one in (diagonal, fixed_epoch, active_caps, smoothed):
            monkeypatch.setattr(one, "on_host", strict_on_host)
        return STRICT
    found = torch_on_cpu() if request.param == "torch" else gpu()
    if found is None:
        missing = {"torch": "PyTorch is not installed", "cuda": "no CUDA device"}
        pytest.skip(missing[request.param])
    return found


def devices_by_name(monkeypatch: pytest.MonkeyPatch, found: Callable[[str], Any]) -> None:
    """Wherever a device is asked for by its name."""
    for module in (backends, solver):
        monkeypatch.setattr(module, "device_of", found)


# --- the same answers -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBLEMS)
def test_same_answers_on_every_device(name: str, device: Device) -> None:
    program = program_of(PROBLEMS[name]).normalized()
    here = diagonal.solve(program, monitor=Monitor(gap=1e-10))
    there = diagonal.solve(program, monitor=Monitor(gap=1e-10), device=device)
    assert there.stop is here.stop is Stop.SOLVED
    assert here.dual is not None
    assert there.dual is not None
    assert here.gram is not None
    assert isinstance(there.gram, np.ndarray)
    assert isinstance(there.dual.blocks, np.ndarray)
    assert there.gram.flags.writeable
    np.testing.assert_allclose(there.dual.blocks, here.dual.blocks, atol=1e-9)
    np.testing.assert_allclose(there.gram, here.gram, rtol=1e-9, atol=1e-9 * here.gram.max())
    interval = oracles.diagonal_interval(np.asarray(program.gram), width=1e-7)
    bound = lower_bound(program, there.dual)
    assert interval.meets(bound, bound * (1 + 1e-9))


@pytest.mark.parametrize("cap", [1.1, 2.0, np.linspace(1.05, 4, 15), 1e6])
def test_same_answers_under_caps(cap: object, device: Device) -> None:
    program = program_of(SpaceProblem(mixing=FLORENTINE, max_variance=cap)).normalized()
    here = active_caps.solve(program, monitor=Monitor(gap=1e-10))
    there = active_caps.solve(program, monitor=Monitor(gap=1e-10), device=device)
    assert there.stop is here.stop is Stop.SOLVED
    assert there.evaluations == here.evaluations
    assert here.dual is not None
    assert there.dual is not None
    assert here.gram is not None
    assert isinstance(there.gram, np.ndarray)
    np.testing.assert_allclose(there.gram, here.gram, rtol=1e-9, atol=1e-9 * here.gram.max())
    bound, other = (lower_bound(program, answer.dual) for answer in (here, there))
    assert other == pytest.approx(bound, rel=1e-11)


@pytest.mark.parametrize("cap", [pytest.param(None, marks=pytest.mark.slow), 3.0])
def test_same_answers_under_floors(cap: float | None, device: Device) -> None:
    problem = SpaceProblem(mixing=FLORENTINE, min_variance=1.5, max_variance=cap)
    program = program_of(problem).normalized()
    here, there = Monitor(gap=1e-9), Monitor(gap=1e-9)
    found = smoothed.solve(program, monitor=here)
    other = smoothed.solve(program, monitor=there, device=device)
    assert found.stop is other.stop is Stop.SOLVED
    assert other.evaluations <= found.evaluations + 1
    assert isinstance(other.gram, np.ndarray)
    assert there.history[-1].lower == pytest.approx(here.history[-1].lower, rel=2e-9)
    assert there.history[-1].upper == pytest.approx(here.history[-1].upper, rel=2e-9)


@pytest.fixture
def decomposed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The device of every matrix decomposed from now on by ``array_api_strict``."""
    monkeypatch.setattr(diagonal, "on_host", strict_on_host)
    places: list[Any] = []
    original = array_api_strict.linalg.eigh

    def noted(array: Any) -> Any:
        places.append(array.device)
        return original(array)

    monkeypatch.setattr(array_api_strict.linalg, "eigh", noted)
    return places


def test_eigendecompositions_are_done_on_the_device(decomposed: list[Any]) -> None:
    program = program_of(PROBLEMS["florentine"])
    answer = diagonal.solve(program, monitor=Monitor(gap=1e-9), device=STRICT)
    assert answer.evaluations > 2
    assert decomposed == [STRICT.place] * answer.evaluations


def test_singular_values_of_a_wide_factor(device: Device) -> None:
    """L = [[3, 0, 0], [0, 0, 4]]: (L^T L)^1/2 = diag(3, 0, 4)."""
    half = device.put(np.array([[3.0, 0, 0], [0, 0, 4]]))
    root, basis = (
        strict_on_host(a) if device is STRICT else on_host(a) for a in singular_values(half)
    )
    np.testing.assert_allclose(root, [0, 3, 4], atol=1e-15)
    np.testing.assert_allclose(np.abs(basis), np.eye(3)[:, [1, 0, 2]], atol=1e-15)


def test_a_nearly_singular_workload_takes_the_factor_to_the_device(device: Device) -> None:
    """v so uneven that eigenvalues of D^1/2 H D^1/2 are lost in rounding: t = tr(D^1/2) is not."""
    put: list[int] = []

    class Counted(Device):
        def put(self, array: np.ndarray) -> Any:
            put.append(array.ndim)
            return device.put(array)

    rng = np.random.default_rng(0)
    orthogonal = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    factor = np.geomspace(1, 1e-9, 6)[:, None] * orthogonal
    program = Program(
        gram=factor.T @ factor, participation=single(6), budget=np.ones(6), exact_factor=factor
    )
    place = Counted(name="counted", library=device.library, place=device.place)
    point = diagonal.evaluate(diagonal.Placed(program, place), device.put(np.zeros(6)))
    assert put == [2, 2]
    assert point.trace == pytest.approx(np.geomspace(1, 1e-9, 6).sum(), rel=1e-14)
    diag = strict_on_host(point.diag) if device is STRICT else on_host(point.diag)
    exact = np.square(orthogonal).T @ np.geomspace(1, 1e-9, 6)
    np.testing.assert_allclose(diag, exact, rtol=1e-12)


EPOCHS_OF = {
    "decentralised": TimeProblem.decentralized(
        mixing=FLORENTINE, participation=FixedEpoch(epochs=4, separation=8)
    ),
    "prefix": TimeProblem.prefix(participation=FixedEpoch(epochs=6, separation=5)),
    "one pattern": TimeProblem.prefix(participation=FixedEpoch(epochs=5, separation=1)),
}


@pytest.mark.parametrize("name", EPOCHS_OF)
def test_same_answers_for_several_epochs(name: str, device: Device) -> None:
    program = program_of(EPOCHS_OF[name]).normalized()
    here = fixed_epoch.solve(program, monitor=Monitor(gap=1e-9))
    there = fixed_epoch.solve(program, monitor=Monitor(gap=1e-9), device=device)
    assert there.stop is here.stop is Stop.SOLVED
    assert there.evaluations == here.evaluations
    assert here.dual is not None
    assert there.dual is not None
    assert here.gram is not None
    assert isinstance(there.gram, np.ndarray)
    assert isinstance(there.dual.blocks, np.ndarray)
    largest = here.dual.blocks.max()
    np.testing.assert_allclose(there.dual.blocks, here.dual.blocks, atol=1e-11 * largest)
    np.testing.assert_allclose(there.gram, here.gram, atol=1e-11 * here.gram.max())
    bound, other = (lower_bound(program, answer.dual) for answer in (here, there))
    assert other == pytest.approx(bound, rel=1e-12)
    begun = Monitor(gap=1e-9, start=here.dual.blocks)
    assert fixed_epoch.solve(program, monitor=begun, device=device).evaluations == 1


def test_epochs_are_decomposed_on_the_device(
    decomposed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixed_epoch, "on_host", strict_on_host)
    devices_by_name(monkeypatch, lambda name: STRICT if name == "cuda" else CPU)
    found = solve(EPOCHS_OF["prefix"], device="cuda", gap=1e-9)
    assert found.status == "optimal"
    assert found.evaluations > 3
    assert decomposed == [STRICT.place] * found.evaluations


@pytest.mark.parametrize("negative", [False, True])
def test_factors_of_stacks_and_of_what_has_none(negative: bool, device: Device) -> None:
    """One error, whatever the library says: [[1, 2], [2, 1]] has the eigenvalue -1."""
    stack = np.array([[[4.0, 2], [2, 5]], [[1, 2], [2, 1 if negative else 8]]])
    if negative:
        with pytest.raises(np.linalg.LinAlgError):
            cholesky_of(device.put(stack))
        return
    lower = cholesky_of(device.put(stack))
    back = strict_on_host(lower) if device is STRICT else on_host(lower)
    np.testing.assert_allclose(back, [[[2, 0], [1, 2]], [[1, 0], [2, 2]]], rtol=1e-15)


def test_a_library_that_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy fills the factor with NaN."""
    monkeypatch.setattr(
        array_api_compat.numpy.linalg, "cholesky", lambda a: np.full_like(a, np.nan)
    )
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        cholesky_of(np.eye(2))


def test_the_whole_solve_on_a_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by name; certified here, by NumPy, to the gap; the library is on record."""
    there = replace(device, versions={"library": "1.0"})
    devices_by_name(monkeypatch, lambda name: there if name == "cuda:1" else CPU)
    star = PROBLEMS["star, singular, slack budgets"]
    capped = SpaceProblem(mixing=FLORENTINE, max_variance=1.5)
    for problem in (PROBLEMS["budgets"], star, capped):
        found = solve(problem, device="cuda:1", gap=1e-9)
        assert found.status == "optimal"
        assert found.design is not None
        assert found.design.gap <= 1e-9
        expected = solve(problem, gap=1e-9).design
        assert expected is not None
        assert found.design.objective == pytest.approx(expected.objective, rel=1e-9)
        np.testing.assert_allclose(found.design.matrix, expected.matrix, rtol=1e-6, atol=1e-6)
        assert found.design.provenance.versions["library"] == "1.0"
        assert "library" not in expected.provenance.versions


def test_a_start_is_taken_to_the_device(device: Device) -> None:
    program = program_of(PROBLEMS["budgets"]).normalized()
    cold = diagonal.solve(program, monitor=Monitor(gap=1e-9))
    assert cold.dual is not None
    begun = Monitor(gap=1e-9, start=cold.dual.blocks)
    warm = diagonal.solve(program, monitor=begun, device=device)
    assert (warm.stop, warm.evaluations) == (Stop.SOLVED, 1)


def test_stopped_solves_return_what_they_have(device: Device) -> None:
    program = program_of(PROBLEMS["florentine"])
    answer = diagonal.solve(program, monitor=Monitor(gap=1e-9, time_limit=1e-9), device=device)
    assert answer.stop is Stop.TIME_LIMIT
    assert answer.dual is not None
    assert lower_bound(program, answer.dual) > 0


# --- float64 --------------------------------------------------------------------------------------


def test_the_cpu_takes_arrays_as_they_are() -> None:
    array = np.eye(3)
    assert CPU.put(array) is array
    assert on_host(array) is array


def test_arrays_on_a_device_are_copies_of_read_only_ones(device: Device) -> None:
    array = np.eye(3)
    array.flags.writeable = False
    there = device.put(array)
    there *= 2
    assert array[0, 0] == 1
    back = strict_on_host(there) if device is STRICT else on_host(there)
    np.testing.assert_array_equal(back, 2 * np.eye(3))
    assert back.dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.complex128])
def test_other_than_float64_is_refused(dtype: Any) -> None:
    with pytest.raises(InputError, match="float64.*float32" if dtype is np.float32 else "float64"):
        CPU.put(np.ones(3, dtype=dtype))
    with pytest.raises(InputError, match="float64"):
        namespace(array_api_strict.asarray(np.ones(3, dtype=dtype)))


def test_a_program_of_float32_is_refused(device: Device) -> None:
    program = Program(
        gram=np.eye(3, dtype=np.float32),  # type: ignore[arg-type]
        participation=single(3),
        budget=np.ones(3),
    )
    with pytest.raises(InputError, match="float32"):
        diagonal.solve(program, monitor=Monitor(gap=1e-6), device=device)
    with pytest.raises(InputError, match="float32"):
        diagonal.evaluate(program, np.zeros(3))


# --- devices that are not there -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "cuda:0 ", "", 0])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises(InputError, match="cpu, cuda or cuda:N") as error:
        device_of(name)
    assert error.value.field == "device"


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]


def fake_torch(monkeypatch: pytest.MonkeyPatch, *, devices: int) -> None:
    cuda = types.SimpleNamespace(is_available=lambda: devices > 0, device_count=lambda: devices)
    torch = types.SimpleNamespace(cuda=cuda, device=lambda *at: at, __version__="2.99+fake")
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "array_api_compat.torch", torch)  # type: ignore[arg-type]


def fake_cupy(monkeypatch: pytest.MonkeyPatch, *, devices: int | None) -> list[int]:
    """``devices`` None: no driver. Returns the devices that are made current."""
    current: list[int] = []

    class CUDARuntimeError(RuntimeError):
        pass

    def count() -> int:
        if devices is None:
            raise CUDARuntimeError("cudaErrorNoDevice")
        return devices

    class Place:
        def __init__(self, index: int) -> None:
            self.index = index

        def use(self) -> None:
            current.append(self.index)

    runtime = types.SimpleNamespace(getDeviceCount=count, CUDARuntimeError=CUDARuntimeError)
    cuda = types.SimpleNamespace(runtime=runtime, Device=Place)
    cupy = types.SimpleNamespace(cuda=cuda, __version__="14.fake")
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "array_api_compat.cupy", cupy)  # type: ignore[arg-type]
    return current


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "torch", "cupy")
    with pytest.raises(InputError, match=r"torch is not installed; cupy is not installed") as error:
        device_of("cuda")
    assert "pip install 'noisedesign[gpu]'" in error.value.remedy


@pytest.mark.parametrize(
    ("devices", "name", "words"),
    [
        (0, "cuda", "torch sees no CUDA devices"),
        (1, "cuda:1", "torch sees 1 CUDA device;"),
        (2, "cuda:2", "torch sees 2 CUDA devices;"),
    ],
)
def test_without_the_device(
    devices: int, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch(monkeypatch, devices=devices)
    without(monkeypatch, "cupy")
    with pytest.raises(InputError) as error:
        device_of(name)
    assert words in error.value.got
    assert name in error.value.expected


def test_the_device_is_the_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, devices=3)
    for name, index in {"cuda": 0, "cuda:0": 0, "cuda:2": 2}.items():
        device = device_of(name)
        assert (device.name, device.place) == (name, ("cuda", index))
        assert device.versions == {"torch": "2.99+fake"}


def test_cupy_where_torch_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes on the current device, so that has to be the one asked for."""
    fake_torch(monkeypatch, devices=0)
    current = fake_cupy(monkeypatch, devices=2)
    device = device_of("cuda:1")
    assert device.place.index == 1
    assert current == [1]
    assert device.versions == {"cupy": "14.fake"}
    fake_cupy(monkeypatch, devices=None)
    with pytest.raises(InputError, match="torch sees no CUDA devices; cupy sees no CUDA devices"):
        device_of("cuda")


def test_a_library_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing shared library is an OSError, not an ImportError."""

    class Broken:
        def find_spec(self, name: str, *_: object) -> None:
            if name in ("torch", "cupy"):
                raise OSError("libcublas.so: cannot open shared object file")

    for name in ("torch", "cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(InputError, match="torch is not installed"):
        device_of("cuda")


# --- solvers without devices ----------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ELSEWHERE.keys() - {"cap", "floor"}))
def test_other_solvers_stay_on_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before the device is looked for: nobody installs a library in vain."""
    without(monkeypatch, "torch", "cupy")
    problem, backend = ELSEWHERE[name]
    with pytest.raises(InputError) as error:
        solve(problem, backend=backend, device="cuda")
    assert (error.value.field, error.value.expected) == ("device", "cpu")
    with pytest.raises(InputError, match="cuda:N"):
        solve(problem, backend=backend, device="tpu")


@pytest.mark.parametrize(
    ("text", "device", "words"),
    [
        (RING, "cuda", "is not installed"),
        (RING, "cuda:7", "cuda:7"),
        (RING, "quantum", "cpu, cuda or cuda:N"),
        (CAPPED, "cuda", "is not installed"),
        (EPOCHS, "cuda", "is not installed"),
    ],
)
def test_the_command_refuses_in_one_line(
    text: str, device: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "torch", "cupy")
    outcome = call("solve", write(tmp_path, text), "--device", device, "--json")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert "device: expected" in outcome.err
    assert words in outcome.err


def test_the_command_hands_the_device_on(
    tmp_path: Path, decomposed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    devices_by_name(monkeypatch, lambda name: asked.append(name) or STRICT)
    path = write(tmp_path, RING)
    outcome = call("solve", path, "--device", "cuda:1", "--json")
    assert outcome.code == 0
    assert set(asked) == {"cuda:1"}
    assert outcome.json()["gap"] <= 1e-6
    assert len(decomposed) == outcome.json()["evaluations"]
    assert call("solve", path, "--device", "cpu").code == 0


def test_dual_of_the_device_is_a_plain_array(device: Device) -> None:
    """What goes into certificates and files is NumPy's, wherever it was computed."""
    answer = diagonal.solve(
        program_of(PROBLEMS["ring-5"]), monitor=Monitor(gap=1e-9), device=device
    )
    assert answer.dual is not None
    uniform = diagonal_dual(np.ones(5))
    np.testing.assert_allclose(answer.dual.blocks, uniform.blocks, rtol=1e-12)
