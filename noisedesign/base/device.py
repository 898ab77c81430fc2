"""Arrays of a solve, in NumPy or on a CUDA device through PyTorch or CuPy.

Solvers are written against the Python array API standard and take its functions from the arrays
they are given (:func:`namespace`). Everything is float64. Decompositions overwrite their argument,
which NumPy's do not: two arrays less."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import array_api_compat
import array_api_compat.numpy
import numpy as np
import scipy.linalg

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_triangular

DeviceArray = Any  # float64 of the standard, on any device: of numpy, torch or cupy
ROWS_OF_PRODUCT = 512  # rows of a product that is only summed up: enough for BLAS at full speed
_CUDA = re.compile(r"cuda(?::(\d{1,4}))?")


@dataclass(frozen=True, kw_only=True)
class Device:
    """A place for arrays: its user name, array namespace, device object and library versions."""

    name: str
    library: Any
    place: Any
    versions: dict[str, str] = field(default_factory=dict)

    def put(self, array: Array) -> DeviceArray:
        """Return ``array`` on this device; on the CPU the array itself."""
        namespace(array)
        if self.library is array_api_compat.numpy:
            return array
        # PyTorch does not take arrays that are read-only.
        return self.library.asarray(np.array(array), device=self.place)


CPU = Device(name="cpu", library=array_api_compat.numpy, place="cpu")


def namespace(*arrays: DeviceArray) -> Any:
    """Return the functions of the standard for float64 ``arrays``, all of one library."""
    here = all(isinstance(array, np.ndarray) for array in arrays)  # asking would take longer
    library = array_api_compat.numpy if here else array_api_compat.array_namespace(*arrays)
    for array in arrays:
        if array.dtype != library.float64:
            got = f"dtype {array.dtype}"
            raise InputError("array", expected="float64 arrays", got=got, remedy=_checks.WIDENED)
    return library


def on_host(array: DeviceArray) -> Array:
    """``array`` as one of NumPy; itself where it is."""
    if isinstance(array, np.ndarray):
        return array
    return np.asarray(array_api_compat.to_device(array, "cpu"))


def identity(size: int, *, like: DeviceArray) -> DeviceArray:
    """The identity matrix in float64, which is not every library's default, where ``like`` lies."""
    xp = namespace(like)
    return xp.eye(size, dtype=xp.float64, device=array_api_compat.device(like))


def cholesky_of(array: DeviceArray) -> DeviceArray:
    """Lower triangular factors of positive definite matrices, else LinAlgError from any library."""
    xp = namespace(array)
    with _one_error():
        lower = xp.linalg.cholesky(array)
    if not bool(xp.all(xp.isfinite(xp.linalg.diagonal(lower)))):  # CuPy raises nothing
        raise np.linalg.LinAlgError("a matrix is not positive definite")
    return lower


def solution_of(a: DeviceArray, right: DeviceArray) -> DeviceArray:
    """x, shape (n,), with a x = ``right``; LinAlgError where a is singular, from any library."""
    with _one_error():
        return namespace(a, right).linalg.solve(a, right[:, None])[:, 0]


def solver_of_positive(a: DeviceArray) -> Callable[[DeviceArray], DeviceArray]:
    """Return the map of b, shape (n,), to x with a x = b, for a positive definite a."""
    if isinstance(a, np.ndarray):
        factor = scipy.linalg.cho_factor(a, lower=True)
        return lambda right: np.asarray(scipy.linalg.cho_solve(factor, right))
    inverse = inverse_of_triangular(cholesky_of(a), invert=namespace(a).linalg.inv)
    return lambda right: inverse.T @ (inverse @ right)


@contextlib.contextmanager
def _one_error() -> Iterator[None]:
    """A matrix that cannot be factored is NumPy's error, whichever library finds out."""
    try:
        yield
    except RuntimeError as error:  # PyTorch's is one, as is that of a device without memory
        if "LinAlgError" not in type(error).__name__:
            raise
        raise np.linalg.LinAlgError(str(error)) from error


def inner_product(left: DeviceArray, right: DeviceArray) -> float:
    """Sum of the products of all entries of two arrays of one shape."""
    xp = namespace(left, right)
    return float(xp.vecdot(xp.reshape(left, (-1,)), xp.reshape(right, (-1,))))


def squared_norm(left: DeviceArray, right: DeviceArray) -> float:
    """Squared Frobenius norm of a product, some rows at a time, without the product as a whole."""
    total, count = 0.0, left.shape[0]
    for start in range(0, count, ROWS_OF_PRODUCT):
        rows = left[start : min(start + ROWS_OF_PRODUCT, count), :] @ right
        total += inner_product(rows, rows)
    return total


class Workload(Protocol):
    """H, shape (n, n), and some L with L^T L = H, shape (r, n)."""

    @property
    def gram(self) -> DeviceArray: ...

    @property
    def factor(self) -> DeviceArray: ...


class Placed:
    """A workload on a device; L, which is seldom needed, goes there when it is."""

    def __init__(self, workload: Workload, device: Device) -> None:
        self.gram = device.put(workload.gram)
        self._workload, self._device = workload, device

    @cached_property
    def factor(self) -> DeviceArray:
        return self._device.put(self._workload.factor)


def index_of(name: str) -> int | None:
    """N of "cuda:N", 0 of "cuda", None of "cpu"; InputError for another name."""
    if isinstance(name, str) and name == CPU.name:
        return None
    found = _CUDA.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise InputError("device", expected="cpu, cuda or cuda:N", got=_checks.describe(name))
    return int(found[1] or 0)


def device_of(name: str) -> Device:
    """Return the device "cpu", "cuda" (the first one) or "cuda:N"; InputError for none."""
    index = index_of(name)
    if index is None:
        return CPU
    reasons = []
    for library in ("torch", "cupy"):  # PyTorch brings CUDA's own libraries along
        try:
            module = importlib.import_module(library)
        except (ImportError, OSError):  # OSError: one of its shared libraries is missing
            reasons.append(f"{library} is not installed")
            continue
        count = _count(library, module)
        if index < count:
            return _cuda(library, module, name=name, index=index)
        devices = "device" if count == 1 else "devices"
        reasons.append(f"{library} sees {count or 'no'} CUDA {devices}")
    remedy = "pip install 'noisedesign[gpu]' installs PyTorch, which needs an NVIDIA GPU and its "
    remedy += "driver besides; the device cpu is always there."
    got = "; ".join(reasons)
    raise InputError("device", expected=f"{name} to be there", got=got, remedy=remedy)


def _count(library: str, module: Any) -> int:
    """Count the CUDA devices that a library sees; 0 without a driver."""
    if library == "torch":
        return int(module.cuda.device_count()) if module.cuda.is_available() else 0
    try:
        return int(module.cuda.runtime.getDeviceCount())
    except module.cuda.runtime.CUDARuntimeError:
        return 0


def _cuda(library: str, module: Any, *, name: str, index: int) -> Device:
    if library == "torch":
        place = module.device("cuda", index)
    else:
        place = module.cuda.Device(index)
        place.use()  # CuPy computes on the current device, wherever its arrays are
    functions = importlib.import_module(f"array_api_compat.{library}")
    versions = {library: str(module.__version__)}
    return Device(name=name, library=functions, place=place, versions=versions)


def eigh(a: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Ascending eigenvalues (n,) and basis of a symmetric matrix, overwritten on the CPU."""
    if not isinstance(a, np.ndarray):
        values, basis = namespace(a).linalg.eigh(a)
        return values, basis
    # LAPACK wants columns; the transpose of a symmetric matrix in rows is one in columns.
    found: Any = scipy.linalg.eigh(a.T, driver="evd", overwrite_a=True, check_finite=False)
    return found[0], found[1]


def cholesky(a: DeviceArray) -> DeviceArray:
    """Lower triangular L, shape (n, n), with L L^T = a; on the CPU it takes the place of a."""
    if not isinstance(a, np.ndarray):
        return cholesky_of(a)
    upper = scipy.linalg.cholesky(a.T, lower=False, overwrite_a=True, check_finite=False)
    return np.asarray(upper.T)


class Solved(NamedTuple):
    """x; the residual it leaves; how many products that took."""

    x: Any
    residual: Any
    products: int


def conjugate_gradients(
    product: Callable[[Any], Any],
    precondition: Callable[[Any], Any],
    *,
    right: Any,
    preconditioned: Any,
    target: float,
    most: int,
    expired: Callable[[], bool] = lambda: False,
) -> Solved:
    """Return x with product(x) near ``right``, shape (k,), from zero, after a step at least."""
    # ``target``, a squared residual in the norm of ``precondition``, is what an objective may lack.
    residual, step = right, preconditioned
    x, size, used = 0 * right, float(right @ preconditioned), 0
    while used < most:
        image = product(step)
        used += 1
        along = float(step @ image)
        if not along > 0:
            break
        length = size / along
        x = x + length * step
        residual = residual - length * image
        turned = precondition(residual)
        previous, size = size, float(residual @ turned)
        if size <= target or expired():
            break
        step = turned + size / previous * step
    return Solved(x, residual, used)
