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
    space = design.noise.space
    assert isinstance(space, SparseCovariance)
    return [_graph(design), _noise(space), _sharing(space), _privacy(design), _baselines(design)]


def _graph(design: Design) -> Section:
    mixing: Any = design.problem.mixing
    degrees = np.diff(mixing.indptr) - (mixing.diagonal() != 0)
    facts = {
        "nodes": mixing.shape[0],
        "weights between nodes": int(degrees.sum()),
        "neighbours of a node": f"{degrees.min()} to {degrees.max()}, {degrees.mean():.3g} on "
        "average",
        "self weights": f"{mixing.diagonal().min():.3g} to {mixing.diagonal().max():.3g}",
    }
    return Section("graph", "Graph", [Facts(facts)])


def _noise(space: SparseCovariance) -> Section:
    sizes = {what: space.arrays()[name].size for name, what in space.names.items()}
    text = (
        f"R, the covariance of the noise of all nodes, is {space.kind}: it follows from the "
        "numbers below, and from W where it is polynomial. R itself is nowhere."
    )
    rows = [[what, size] for what, size in sizes.items()]
    table = Table("What the noise is made of", ["array", "numbers"], rows)
    return Section("noise", "Noise", [Text(text), table])


def _sharing(space: SparseCovariance) -> Section:
    return Section("sharing", "Who shares what", [Text(space.drawn)])


def _privacy(design: Design) -> Section:
    found = calibration_of(design.problem)
    text = Text("What single nodes learn takes n x n arrays, and is not computed here.")
    promise = promise_of(design.problem.privacy, found)
    told = eavesdropped(found.mu, "What an observer learns")
    return Section("privacy", "Privacy", [*promise, text, *told])


def _baselines(design: Design) -> Section:
    facts = {
        "objective": design.objective,
        "of independent noise": design.ldp_objective,
        "over independent noise at equal privacy": design.relative_to_ldp,
        "over the bound on noise of every structure, at most": 1 + design.gap,
        "confidence of objective and bound": design.certificate.confidence,
    }
    return Section("baselines", "Noise against baselines", [Facts(facts)])


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
    return [
        Section("graph", "Graph", [Text(graph)]),
        Section("noise", "Noise", [Text(text), first_column]),
        Section("spectra", "Spectra", [spectrum]),
        Section("sharing", "Who shares what", [Text(shared)]),
        _streaming_privacy(design),
        _streaming_baselines(design),
    ]


def _streaming_privacy(design: StreamingDesign) -> Section:
    scheme = design.participation
    text = (
        f"For a record with participation {scheme}, at most {scheme.largest_size} of "
        f"{scheme.horizon} steps. There is no graph, so nobody is a neighbour who sees less."
    )
    promise = promise_of(design.privacy, design.calibration)
    told = eavesdropped(design.calibration.mu, "What every observer learns")
    return Section("privacy", "Privacy under every threat model", [*promise, Text(text), *told])


def _streaming_baselines(design: StreamingDesign) -> Section:
    alone = BandedInverse(coefficients=np.ones(1), steps=design.horizon)
    independent = (
        alone.squared_error(design.workload)
        * alone.squared_sensitivity(design.participation).squared
    )
    facts = {
        "objective": design.objective,
        "of independent noise": independent,
        "over independent noise at equal privacy": design.objective / independent,
        "over the bound on strategies of every structure, at most": 1 + design.excess_upper_bound,
    }
    return Section("baselines", "Noise against baselines", [Facts(facts)])
