"""Sections about designs of which nothing is of the size of a matrix: on a graph of which W stays
sparse, or streaming, for any horizon."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisedesign.design.design import Design
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.forms import BandedInverse, SparseCovariance
from noisedesign.pages import pictures
from noisedesign.pages.content import Facts, Pictures, Section, Table, Text, vectors
from noisedesign.pages.privacy import eavesdropped, promise_of
from noisedesign.problem.calibration import calibration_of


def sections_of(design: Design) -> list[Section]:
    mixing: Any = design.problem.mixing
    space = design.noise.space
    assert isinstance(space, SparseCovariance)
    degrees = np.diff(mixing.indptr) - (mixing.diagonal() != 0)
    facts = {
        "nodes": mixing.shape[0],
        "weights between nodes": int(degrees.sum()),
        "neighbours of a node": f"{degrees.min()} to {degrees.max()}, {degrees.mean():.3g} on "
        "average",
        "self weights": f"{mixing.diagonal().min():.3g} to {mixing.diagonal().max():.3g}",
    }
    text = (
        f"R, the covariance of the noise of all nodes, is {space.kind}: it follows from the "
        "numbers below, and from W where it is polynomial. R itself is nowhere."
    )
    rows = [[what, space.arrays()[name].size] for name, what in space.names.items()]
    table = Table("What the noise is made of", ["array", "numbers"], rows)
    found = calibration_of(design.problem)
    unknown = Text("What single nodes learn takes n x n arrays, and is not computed here.")
    promise = promise_of(design.problem.privacy, found)
    told = eavesdropped(found.mu, "What an observer learns")
    compared = {
        "objective": design.objective,
        "of independent noise": design.ldp_objective,
        "over independent noise at equal privacy": design.relative_to_ldp,
        "over the bound on noise of every structure, at most": 1 + design.gap,
        "confidence of objective and bound": design.certificate.confidence,
    }
    return [
        Section("graph", "Graph", [Facts(facts)]),
        Section("noise", "Noise", [Text(text), table]),
        Section("sharing", "Who shares what", [Text(space.drawn)]),
        Section("privacy", "Privacy", [*promise, unknown, *told]),
        Section("baselines", "Noise against baselines", [Facts(compared)]),
    ]


# --- streaming designs ----------------------------------------------------------------------------


def streaming_sections(design: StreamingDesign, made: Pictures) -> list[Section]:
    """Noise, spectrum, who shares what, privacy and baselines of a design for any horizon."""
    strategy, horizon = design.strategy, design.horizon
    lags = min(horizon, 65_536)
    column = strategy.at(lags).noising_column(lags)
    told = f" (the first {lags} of {horizon})" if lags < horizon else ""
    caption = (
        f"First column of C⁻¹{told}: at every step, what noise of so many steps before is added "
        "or taken back."
    )
    drawn = (column, "size of the coefficient of C⁻¹", True)
    first_column = made.add("First column of C^-1", caption, pictures.draw_lags, *drawn)
    power = np.square(np.abs(np.fft.rfft(column, n=4 * lags)))
    caption = (
        "Power of the noise by frequency: little at low frequencies, where the sum over many "
        "steps would pile it up."
    )
    spectrum = made.add("Power by frequency", caption, pictures.draw_frequencies, power)
    text = (
        f"C is {strategy.kind}, constant along its diagonals, in "
        f"{sum(a.size for a in strategy.at(horizon).arrays().values())} numbers, for {horizon} "
        "steps."
    )
    graph = "A streaming design has no graph: every node, or a server, uses its noise alone."
    shared = (
        "Nothing is shared: whoever uses the noise draws it alone, from a seed of its own. Between "
        f"steps it keeps {vectors(strategy.vectors_kept(horizon))}."
    )
    scheme = design.participation
    who = (
        f"For a record with participation {scheme}, at most {scheme.largest_size} of "
        f"{scheme.horizon} steps. There is no graph, so nobody is a neighbour who sees less."
    )
    promise = promise_of(design.privacy, design.calibration)
    learnt = eavesdropped(design.calibration.mu, "What every observer learns")
    alone = BandedInverse(coefficients=np.ones(1), steps=horizon)
    sensitivity = alone.squared_sensitivity(scheme).squared
    independent = alone.squared_error(design.workload) * sensitivity
    facts = {
        "objective": design.objective,
        "of independent noise": independent,
        "over independent noise at equal privacy": design.objective / independent,
        "over the bound on strategies of every structure, at most": 1 + design.excess_upper_bound,
    }
    return [
        Section("graph", "Graph", [Text(graph)]),
        Section("noise", "Noise", [Text(text), first_column]),
        Section("spectra", "Spectra", [spectrum]),
        Section("sharing", "Who shares what", [Text(shared)]),
        Section("privacy", "Privacy under every threat model", [*promise, Text(who), *learnt]),
        Section("baselines", "Noise against baselines", [Facts(facts)]),
    ]
