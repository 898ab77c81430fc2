"""Files of conic programs read by code that did not write them, in one neutral form.

SDPA's sparse format by sdpa-python, MOSEK's files and the Conic Benchmark Format by MOSEK, and the
latter once more by a few lines here, because MOSEK multiplies what it reads by the root of two.
Everything a file says comes back, so that files can be compared entry by entry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.conic.program import ConicProgram

Block = dict[tuple[int, int, int], float]
"""(variable, row, column), the lower triangle from 0; variable 0 is the constant: coefficient."""
Rows = dict[tuple[int, int], float]
"""(variable, row): coefficient of a row that is at least 0."""


@dataclass
class Read:
    """minimise <cost, x> subject to blocks >= 0, rows >= 0."""

    cost: dict[int, float]
    variables: int
    sizes: list[int]
    blocks: list[Block]
    row_count: int = 0
    rows: Rows = field(default_factory=dict)


def expected(program: ConicProgram) -> Read:
    """What a file of the program must say."""
    blocks: list[Block] = []
    for block in program.blocks:
        e = block.entries
        assert (e.row >= e.column).all()
        found = {
            (int(v), int(i), int(j)): float(value)
            for v, i, j, value in zip(e.variable, e.row, e.column, e.value, strict=True)
        }
        assert len(found) == len(e), "an entry twice"
        blocks.append(found)
    e = program.rows.entries
    rows = {(int(v), int(i)): float(x) for v, i, x in zip(e.variable, e.row, e.value, strict=True)}
    assert len(rows) == len(e), "an entry twice"
    return Read(
        cost={int(v) + 1: float(program.cost[v]) for v in np.flatnonzero(program.cost)},
        variables=program.variables,
        sizes=[block.size for block in program.blocks],
        blocks=blocks,
        row_count=program.rows.size,
        rows=rows,
    )


# --- SDPA ----------------------------------------------------------------------------------------


def read_sdpa(path: Path) -> Read:
    """By sdpa-python: (A, b, c, K), linear rows first, then blocks as flat squares."""
    sdpap = pytest.importorskip("sdpap", reason="pip install 'noisedesign[solvers]'")
    a, b, c, cone, _ = sdpap.importsdpa(str(path), flipsign=False)
    a, c = a.tocsc(), c.toarray().ravel()
    cost = b.toarray().ravel()
    assert (cone.f, len(cone.q)) == (0, 0)
    found = Read(
        cost={v + 1: float(x) for v, x in enumerate(cost) if x},
        variables=len(cost),
        sizes=list(cone.s),
        blocks=[],
        row_count=cone.l,
    )
    triplets = _coefficients(a, c)
    found.rows = {(v, at): x for v, at, x in triplets if at < cone.l}
    start = cone.l
    for size in cone.s:
        square: Block = {}
        for v, at, x in triplets:
            if start <= at < start + size**2:
                square[v, *divmod(at - start, size)] = x
        assert all(square[v, j, i] == x for (v, i, j), x in square.items()), "not symmetric"
        found.blocks.append({key: x for key, x in square.items() if key[1] >= key[2]})
        start += size**2
    return found


def _coefficients(a: Any, c: np.ndarray) -> list[tuple[int, int, float]]:
    a = a.tocoo()
    moving = zip(a.row, a.col, a.data, strict=True)
    return [(int(v) + 1, int(at), float(x)) for v, at, x in moving] + [
        # SDPA subtracts F_0.
        (0, int(at), -float(c[at]))
        for at in np.flatnonzero(c)
    ]


# --- CBF -----------------------------------------------------------------------------------------


def read_cbf(path: Path) -> Read:
    """The keywords that these files have, and no other."""
    lines = [
        line.split()
        for line in path.read_text(encoding="utf-8").split("\n")
        if line.strip() and not line.startswith("#")
    ]
    at = 0

    def body(keyword: str, extra: int = 0) -> list[list[str]]:
        """The entries of a section, whose count stands on its first line."""
        nonlocal at
        if at >= len(lines) or lines[at] != [keyword]:
            return []
        count = int(lines[at + 1][extra])
        section = lines[at + 2 : at + 2 + count]
        at += 2 + count
        assert len(section) == count
        return section

    assert lines[:4] == [["VER"], ["2"], ["OBJSENSE"], ["MIN"]]
    at = 4
    variables = body("VAR", 1)
    assert [kind for kind, _ in variables] == ["F"]
    found = Read(cost={}, variables=int(variables[0][1]), sizes=[], blocks=[])
    found.sizes = [int(size) for (size,) in body("PSDCON")]
    found.blocks = [{} for _ in found.sizes]
    for kind, size in body("CON", 1):
        assert kind == "L+"
        found.row_count = int(size)
    found.cost = {int(v) + 1: float(x) for v, x in body("OBJACOORD")}
    for i, v, x in body("ACOORD"):
        found.rows[int(v) + 1, int(i)] = float(x)
    for i, x in body("BCOORD"):
        found.rows[0, int(i)] = float(x)
    for c, v, i, j, x in body("HCOORD"):
        found.blocks[int(c)][int(v) + 1, int(i), int(j)] = float(x)
    for c, i, j, x in body("DCOORD"):
        found.blocks[int(c)][0, int(i), int(j)] = float(x)
    assert at == len(lines), f"left over: {lines[at]}"
    return found


# --- MOSEK ---------------------------------------------------------------------------------------


def read_mosek(path: Path) -> tuple[Read, str]:
    """Any file MOSEK reads, of linear objective and affine conic constraints; its name."""
    import mosek

    with mosek.Env() as environment, environment.Task() as task:
        task.readdata(str(path))
        others = (task.getnumcon(), task.getnumbarvar(), task.getnumcone(), task.getnumqobjnz())
        assert others == (0, 0, 0, 0)
        assert task.getobjsense() == mosek.objsense.minimize
        assert task.getcfix() == 0
        variables = task.getnumvar()
        keys, *_ = task.getvarboundslice(0, variables)
        assert set(keys) == {mosek.boundkey.fr}
        terms: dict[int, dict[int, float]] = {}
        for f, v, x in zip(*task.getafeftrip(), strict=True):
            terms.setdefault(int(f), {})[int(v) + 1] = float(x)
        for f, x in enumerate(task.getafegslice(0, task.getnumafe())):
            if x:
                terms.setdefault(f, {})[0] = float(x)
        cost = task.getcslice(0, variables)
        found = Read(
            cost={v + 1: float(x) for v, x in enumerate(cost) if x},
            variables=variables,
            sizes=[],
            blocks=[],
        )
        for number in range(task.getnumacc()):
            domain, size = task.getaccdomain(number), task.getaccn(number)
            expressions = [terms.get(int(f), {}) for f in task.getaccafeidxlist(number)]
            assert not any(task.getaccb(number))
            kind = task.getdomaintype(domain)
            if kind == mosek.domaintype.svec_psd_cone:
                rows = math.isqrt(2 * size)
                found.sizes.append(rows)
                found.blocks.append(_unscaled(expressions, rows))
            else:
                assert kind == mosek.domaintype.rplus
                for row, expression in enumerate(expressions, start=found.row_count):
                    found.rows |= {(v, row): x for v, x in expression.items()}
                found.row_count += size
        return found, task.gettaskname()


def _unscaled(expressions: list[dict[int, float]], size: int) -> Block:
    """The lower triangle, column by column, its off-diagonal entries times the root of two."""
    places = [(i, j) for j in range(size) for i in range(j, size)]
    return {
        (v, i, j): x if i == j else x / math.sqrt(2)
        for (i, j), expression in zip(places, expressions, strict=True)
        for v, x in expression.items()
    }


# --- solving what was read -----------------------------------------------------------------------


def solved(read: Read) -> tuple[float, np.ndarray]:
    """The optimum by Clarabel, and x."""
    import cvxpy as cp

    x = cp.Variable(read.variables + 1)
    limits: list[Any] = [x[0] == 1]
    for size, block in zip(read.sizes, read.blocks, strict=True):
        flat = np.zeros((size * size, read.variables + 1))
        for (v, i, j), value in block.items():
            flat[i * size + j, v] = flat[j * size + i, v] = value
        limits.append(cp.reshape(flat @ x, (size, size), order="C") >> 0)
    rows = np.zeros((read.row_count, read.variables + 1))
    for (v, row), value in read.rows.items():
        rows[row, v] = value
    cost = np.zeros(read.variables + 1)
    for v, value in read.cost.items():
        cost[v] = value
    problem = cp.Problem(cp.Minimize(cost @ x), [*limits, *([rows @ x >= 0] if len(rows) else [])])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert problem.status in ("optimal", "optimal_inaccurate")
    return float(problem.value), np.asarray(x.value[1:])
