"""Covariances of shared seeds in matrix inequalities: R built from a block for every set."""

from __future__ import annotations

from math import comb

import numpy as np

from noisedesign.conic.program import (
    Assembly,
    Numbers,
    listed,
    lower_triangle,
    moved,
    positive,
    require_size,
    triangle,
)
from noisedesign.families.disjoint.model import precision_within, variances_within
from noisedesign.families.shared_seeds.bound import CliqueProgram
from noisedesign.families.shared_seeds.sets import Clique


def covariance(program: CliqueProgram) -> Assembly:
    """R = sum_c E_c P_c E_c^T, P_c >= 0; the budgets hold before every coalition that knows seeds.

    A coalition knows the blocks of the cliques it touches: [[R_A, I], [I, X_A]] >= 0 on the nodes
    outside, R_A the sum of the others.
    """
    size, outside = program.size, program.size - program.known_seeds
    coalitions = comb(size, program.known_seeds)
    entries = sum(triangle(len(clique)) for clique in program.cliques)
    require_size(
        (1 + coalitions) * entries
        + coalitions * (triangle(outside) + 3 * outside)
        + size
        + sum(len(clique) for clique in program.cliques),
        of=f"{len(program.cliques):,} cliques, {coalitions:,} coalitions",
    )
    assembly = Assembly()
    blocks: list[tuple[Clique, Numbers]] = []
    for clique in program.cliques:
        p = assembly.symmetric(
            "P",
            len(clique),
            cost=program.gram[np.ix_(clique, clique)],
            meaning=f"covariance of the seed shared by nodes {listed(clique)}",
        )
        positive(assembly, len(clique), [lower_triangle(p)])
        blocks.append((clique, p))
    for known in program.coalitions:
        rest = np.setdiff1d(np.arange(size), known)
        # Nodes outside the coalition, renumbered; cliques are in ascending order, so that lower
        # triangles stay lower triangles.
        r = [
            moved(lower_triangle(p), np.searchsorted(rest, clique))
            for clique, p in blocks
            if not set(clique) & set(known)
        ]
        precision_within(assembly, r, program.budget[rest])
    everything = [moved(lower_triangle(p), np.array(clique)) for clique, p in blocks]
    variances_within(assembly, everything, cap=program.cap)
    return assembly
