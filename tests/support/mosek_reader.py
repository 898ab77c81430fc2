"""A MOSEK task file read by MOSEK's own reader, and the same problem for another solver.

Covers what cvxpy writes for our models: linear terms, bounds, equality and inequality rows and
semidefinite variables. Anything else in a file is refused, so nothing can be lost unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mosek
import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    import cvxpy as cp


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """optimise  cost x + sum <bar_cost_j, X_j> + offset
    subject to  rows_low <= A x + sum <bar_rows_ij, X_j> <= rows_high,  low <= x <= high,
    X_j positive semidefinite of size sizes_j.

    ``bar_rows[j]`` has a row a constraint: the symmetric matrix of that row, flattened.
    """

    maximise: bool
    cost: np.ndarray
    offset: float
    matrix: sp.csr_array
    low: np.ndarray
    high: np.ndarray
    rows_low: np.ndarray
    rows_high: np.ndarray
    sizes: tuple[int, ...]
    bar_cost: tuple[np.ndarray, ...]
    bar_rows: tuple[sp.csr_array, ...]
    parameters: dict[str, float]


def read(path: Path, *, parameters: tuple[str, ...] = ()) -> TaskData:
    """Everything in a task file. Reading and the calls below need no licence."""
    with mosek.Env() as environment, environment.Task() as task:
        task.readdata(str(path))
        _refuse_other_cones(task)
        variables, constraints = task.getnumvar(), task.getnumcon()
        rows, columns, values = task.getatrip()
        sizes = tuple(task.getdimbarvarj(j) for j in range(task.getnumbarvar()))
        low, high = _bounds(*task.getvarboundslice(0, variables))
        rows_low, rows_high = _bounds(*task.getconboundslice(0, constraints))
        return TaskData(
            maximise=task.getobjsense() == mosek.objsense.maximize,
            cost=np.array(task.getcslice(0, variables)),
            offset=task.getcfix(),
            matrix=sp.csr_array((values, (rows, columns)), shape=(constraints, variables)),
            low=low,
            high=high,
            rows_low=rows_low,
            rows_high=rows_high,
            sizes=sizes,
            bar_cost=_bar_cost(task, sizes),
            bar_rows=_bar_rows(task, sizes, constraints),
            parameters={name: task.getdouparam(getattr(mosek.dparam, name)) for name in parameters},
        )


def _refuse_other_cones(task: Any) -> None:
    counts = {
        "quadratic cones": task.getnumcone(),
        "affine conic constraints": task.getnumacc(),
        "affine expressions": task.getnumafe(),
        "disjunctions": task.getnumdjc(),
        "integer variables": task.getnumintvar(),
        "quadratic objective terms": task.getnumqobjnz(),
    }
    found = [name for name, count in counts.items() if count]
    if found:
        raise NotImplementedError(f"the task has {', '.join(found)}")


def _bounds(keys: Any, lower: Any, upper: Any) -> tuple[np.ndarray, np.ndarray]:
    """Bounds as numbers, infinite where the key says that there is none."""
    key = mosek.boundkey
    low = np.where([k in (key.lo, key.fx, key.ra) for k in keys], lower, -np.inf)
    high = np.where([k in (key.up, key.fx, key.ra) for k in keys], upper, np.inf)
    return low.astype(np.float64), high.astype(np.float64)


def _bar_cost(task: Any, sizes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    matrices = [np.zeros((size, size)) for size in sizes]
    # The number of triplets comes first; they name the lower triangle only.
    for j, k, h, value in zip(*task.getbarcblocktriplet()[-4:], strict=True):
        matrices[j][k, h] = matrices[j][h, k] = value
    return tuple(matrices)


def _bar_rows(task: Any, sizes: tuple[int, ...], constraints: int) -> tuple[sp.csr_array, ...]:
    entries: list[list[tuple[int, int, float]]] = [[] for _ in sizes]
    for i, j, k, h, value in zip(*task.getbarablocktriplet()[-5:], strict=True):
        entries[j].append((i, k * sizes[j] + h, value))
        if k != h:
            entries[j].append((i, h * sizes[j] + k, value))
    blocks = []
    for size, found in zip(sizes, entries, strict=True):
        rows, columns, values = zip(*found, strict=True) if found else ((), (), ())
        blocks.append(sp.csr_array((values, (rows, columns)), shape=(constraints, size**2)))
    return tuple(blocks)


def rebuild(data: TaskData) -> cp.Problem:
    """The same problem in cvxpy."""
    import cvxpy as cp

    x = cp.Variable(len(data.cost))
    bars = [cp.Variable((size, size), PSD=True) for size in data.sizes]
    objective = data.cost @ x + data.offset
    left = data.matrix @ x
    for matrix, rows, bar in zip(data.bar_cost, data.bar_rows, bars, strict=True):
        objective += cp.sum(cp.multiply(matrix, bar))
        left += rows @ cp.vec(bar, order="C")
    constraints = [
        *_between(left, data.rows_low, data.rows_high),
        *_between(x, data.low, data.high),
    ]
    goal = cp.Maximize(objective) if data.maximise else cp.Minimize(objective)
    return cp.Problem(goal, constraints)


def _between(expression: Any, low: np.ndarray, high: np.ndarray) -> list[Any]:
    fixed = low == high
    below = np.isfinite(low) & ~fixed
    above = np.isfinite(high) & ~fixed
    constraints = []
    if fixed.any():
        constraints.append(expression[fixed] == low[fixed])
    if below.any():
        constraints.append(expression[below] >= low[below])
    if above.any():
        constraints.append(expression[above] <= high[above])
    return constraints
