"""The graph, the noise of a design, its spectra, and who shares what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.design.design import Design, seed_plan_of
from noisedesign.pages import pictures, plot
from noisedesign.pages.content import Facts, Part, Pictures, Section, Table, Text, vectors
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.problem.problem import Problem

# --- the graph ------------------------------------------------------------------------------------


def graph_section(design: Design, made: Pictures) -> Section:
    problem = design.problem
    if problem.mixing is None:
        text = (
            "This design is for one model and has no graph: whoever uses its noise, a server or "
            "every node for itself, draws it alone."
        )
        return Section("graph", "Graph", [Text(text)])
    linked = problem.mixing != 0  # an edge from v to u where W_uv is not zero
    np.fill_diagonal(linked, False)
    directed = not (linked == linked.T).all()
    graph = nx.from_numpy_array(linked.T, create_using=nx.DiGraph if directed else nx.Graph)
    degrees = [len(set(nx.all_neighbors(graph, node))) for node in range(len(graph))]
    correlation = None
    if design.noise.space is not None:
        variances = np.maximum(np.diagonal(design.covariance), np.finfo(np.float64).tiny)
        correlation = design.covariance / np.sqrt(variances)[:, None] / np.sqrt(variances)
    drawn = "The graph is not drawn: it has more than "
    drawn += f"{pictures.MOST_NODES} nodes and {pictures.MOST_EDGES} edges."
    picture: Part = Text(drawn)
    if len(graph) <= pictures.MOST_NODES and graph.number_of_edges() <= pictures.MOST_EDGES:
        picture = _graph_picture(problem.nodes, graph, correlation, made)
    facts = Facts(_graph_facts(problem, graph, degrees))
    return Section("graph", "Graph", [facts, picture, _node_table(design, degrees, correlation)])


def _graph_facts(problem: Problem, graph: nx.Graph, degrees: list[int]) -> dict[str, Any]:
    w: Any = problem.mixing
    sizes = np.sort(np.abs(np.linalg.eigvals(w)))[::-1]
    rows, columns = (bool(np.allclose(w.sum(axis=axis), 1)) for axis in (1, 0))
    kind = {(True, True): "doubly", (True, False): "row"}.get((rows, columns), "column")
    symmetric = "symmetric" if np.allclose(w, w.T) else "not symmetric"
    close = len(graph) <= 400 and not graph.is_directed() and nx.is_connected(graph)
    facts: dict[str, Any] = {
        "nodes": len(graph),
        "arcs" if graph.is_directed() else "edges": graph.number_of_edges(),
        "neighbours of a node": f"{min(degrees)} to {max(degrees)}, {np.mean(degrees):.3g} on "
        "average",
        "diameter": f"{nx.diameter(graph)} hops" if close else None,
        "mixing matrix W": f"{kind} stochastic, {symmetric}",
        "second largest eigenvalue of W": float(sizes[1]) if len(sizes) > 1 else None,
        "gossip rounds a step": problem.rounds if problem.rounds > 1 else None,
    }
    if problem.schedule is not None:
        facts["schedule"] = f"{len(problem.schedule)} matrices in turn; W here is their average"
    if problem.random is not None:
        facts["random mixing"] = f"{problem.random!r}; W here is that without failures"
    return facts


def _graph_picture(
    names: Sequence[str], graph: nx.Graph, correlation: Array | None, made: Pictures
) -> Part:
    lines = "arcs, from who sends to who hears" if graph.is_directed() else "edges"
    caption = f"The graph: {len(graph)} nodes, {graph.number_of_edges()} {lines}."
    if correlation is not None:
        caption += (
            " An edge is blue where the noise of its ends is correlated negatively, so that it "
            "cancels when they average, and red where positively."
        )
    caption += " All names are in the table."
    drawn, height = (graph, names, correlation), 3.9 if correlation is None else 4.4
    return made.add("Graph of the nodes", caption, pictures.draw_graph, *drawn, height=height)


def _node_table(design: Design, degrees: list[int], correlation: Array | None) -> Part:
    names, columns = design.problem.nodes, ["node", "neighbours"]
    rows: list[list[Any]] = [[name, degrees[i]] for i, name in enumerate(names)]
    if correlation is not None:
        others = correlation - np.diag(np.diagonal(correlation))
        columns += ["noise variance", "noise correlates most with", "correlation"]
        for i, row in enumerate(rows):
            other = int(np.abs(others[i]).argmax())
            value = float(others[i, other])
            variance = float(design.covariance[i, i])
            row += [variance, names[other] if value else None, value or None]
    return Table("Nodes, in the order of the matrices", columns, rows)


# --- the matrices ---------------------------------------------------------------------------------


def noise_section(design: Design, made: Pictures) -> Section:
    parts: list[Part] = [Text(_DRAWN["full" if design.noise.full else design.axes])]
    if design.noise.space is not None:
        caption = (
            "Covariance R of the noise of the nodes at one step, at the stated budgets: squared "
            "noise. White is zero."
        )
        title, draw = "Covariance R of the nodes", plot.draw_covariance
        parts.append(made.add(title, caption, draw, design, height=4.5, squares=True))
    if design.noise.strategy is not None:
        steps, first = len(design.noising_matrix), plot.thin_from(design)
        caption = "Noising matrix C⁻¹: the noise of a step is its row times white noise. "
        if first:
            caption += f"Of {steps} rows the last {steps - first} are drawn. "
        caption += "White is zero."
        title, draw = "Noising matrix C^-1", plot.draw_noising
        parts.append(made.add(title, caption, draw, design, squares=True))
        caption = "The last row of C⁻¹ by itself: what noise of earlier steps the last step has."
        parts.append(made.add("Last row of C^-1", caption, plot.draw_last_row, design))
    return Section("noise", "Noise", parts)


_DRAWN = {
    "full": "At every step, for every coordinate of the model, the noise of all nodes is one row "
    "of blocks of C⁻¹ times white noise, all of it dealt by one who is trusted with it.",
    "space": "At every step, for every coordinate of the model, one draws z from N(0, σ² R), "
    "afresh; node i adds z_i to its sum of clipped gradients before mixing.",
    "time": "Every node draws white noise Z of its own and at step t adds σ Σ_s (C⁻¹)_ts Z_s to "
    "its sum of clipped gradients before mixing.",
    "space-time": "Noise of covariance (CᵀC)⁻¹ ⊗ R: at step t node i adds σ Σ_s (C⁻¹)_ts Z_si, the "
    "rows Z_s drawn from N(0, R).",
}


# --- spectra --------------------------------------------------------------------------------------


def spectra_section(design: Design, others: Sequence[Design], made: Pictures) -> Section:
    independent = next((d for d in others if d.provenance.method == "ldp"), None)
    parts: list[Part] = []
    facts: dict[str, Any] = {
        "σ_mix² (squared noise that every node could draw by itself)": design.independent_variance
    }
    for what, covariance in _covariances(design).items():
        values = np.asarray(np.linalg.eigvalsh(covariance), dtype=np.float64)
        facts[f"eigenvalues of {what}"] = f"{values[0]:.6g} to {values[-1]:.6g}"
        level = None
        if independent is not None and what in (known := _covariances(independent)):
            diagonal = np.diagonal(known[what])
            level = float(diagonal[0]) if np.allclose(diagonal, diagonal[0]) else None
        drawn = (values, level, f"eigenvalues of {what}")
        caption = f"Eigenvalues of {what}. Correlated noise has less of it in some directions."
        parts.append(made.add(f"Spectrum of {what}", caption, pictures.draw_spectrum, *drawn))
    if (own := design.independent_variance) is not None:
        facts["independent part of R (sigma_mix^2 of Whisper D-SGD)"] = own
        if independent is not None and independent.independent_variance is not None:
            facts["that of independent noise"] = independent.independent_variance
    gram = getattr(design.problem, "gram", None)  # in space and time H is no matrix of one of them
    if gram is not None:
        weights, vectors = np.linalg.eigh(gram)
        along = [
            np.einsum("ij,ij->j", vectors, covariance @ vectors)
            for one in (design, independent)
            for covariance in (() if one is None else _covariances(one).values())
        ]
        caption = (
            "Variance of the noise along every eigenvector of H, the matrix of the error tr(H "
            "cov(z)): noise goes where the error counts it least."
        )
        title, draw = "Noise against the weight of its error", pictures.draw_alignment
        parts.append(made.add(title, caption, draw, weights, *along))
    return Section("spectra", "Spectra", [Facts(facts), *parts])


def _covariances(design: Design) -> dict[str, Array]:
    """Covariances of the noise, by name: over nodes, over steps, or over all pairs of them."""
    found = {}
    if design.noise.space is not None:
        found["R, the covariance of the nodes"] = design.covariance
    if design.noise.strategy is not None:
        noising = design.noising_matrix
        over = "nodes and steps" if design.noise.full else "steps"
        found[f"(CᵀC)⁻¹, the covariance over {over}"] = noising @ noising.T
    return found


# --- who shares what ------------------------------------------------------------------------------


def sharing_section(design: Design, made: Pictures) -> Section:
    parts: list[Part] = []
    plan = seeds_of(design)
    if plan is not None:
        parts += _of_seeds(plan, design.problem.nodes)
        space = getattr(design.problem, "structure", None) or getattr(design.problem, "space", None)
        if known := getattr(space, "known_seeds", 0):
            text = f"The budgets hold even against any {known} nodes that pool their seeds."
            parts.append(Text(text))
    elif design.noise.space is None and not design.noise.full:
        text = "Nothing is shared: every node draws its noise alone, from a seed of its own."
        parts.append(Text(text))
    else:
        text = (
            "The noise is dealt: R has no structure, so the values of all nodes are drawn "
            "together, by one who is trusted with all of them or by a protocol among the nodes, "
            "and handed to each node in private. Who knows the noise of all nodes reads every "
            "gradient."
        )
        parts.append(Text(text, "warning"))
    if design.noise.strategy is None:
        parts.append(Text("Steps are independent: nothing of one step's noise is in another."))
        return Section("sharing", "Who shares what", parts)
    strategy = design.noise.strategy
    told = f"between steps a node keeps {vectors(strategy.vectors_kept(strategy.horizon))}."
    if strategy.kind == "dense":
        told = "a step takes noise of all earlier steps, which a node keeps or draws again from its"
        told += " seed."
    parts.append(Text(f"C is {strategy.kind}: {told}"))
    if not design.noise.full:
        noising = design.noising_matrix
        last = noising @ noising[-1]
        scale = np.sqrt(np.einsum("ij,ij->i", noising, noising))
        correlation = (last / scale / scale[-1])[::-1][1 : plot.lags_of(design) + 1]
        if correlation.size:
            lags = np.concatenate([[0.0], correlation])
            caption = (
                "Correlation of the noise of the last step with that of earlier steps, at one "
                "node: blue is negative, noise that is taken back."
            )
            drawn = (lags, "correlation", False)
            parts.append(made.add("Correlations over time", caption, pictures.draw_lags, *drawn))
    return Section("sharing", "Who shares what", parts)


def seeds_of(design: Design) -> SeedPlan | None:
    try:
        return seed_plan_of(design)
    except InputError:
        return None


def _of_seeds(plan: SeedPlan, names: Sequence[str]) -> list[Part]:
    sizes = Counter(len(seed.members) for seed in plan.seeds)
    partners: list[set[int]] = [set() for _ in names]
    held = [0] * len(names)
    for seed in plan.seeds:
        for member in seed.members:
            held[member] += 1
            partners[member].update(seed.members)
    others = [[names[j] for j in sorted(found - {i})] for i, found in enumerate(partners)]
    rows = []
    for i, own in enumerate(others):
        more = [f"and {len(own) - 12} more"] if len(own) > 12 else []
        rows.append([names[i], held[i], len(own), ", ".join([*own[:12], *more]) or "nobody"])
    told = ", ".join(
        f"{count} of {size} {'nodes' if size > 1 else 'node'}"
        for size, count in sorted(sizes.items())
    )
    text = (
        "The noise is made of seeds that nodes share; nobody deals it. The holders of a seed agree "
        "on it in private, draw the same numbers from it, and each adds its own multiple of them."
    )
    facts = Facts({"seeds": f"{len(plan.seeds)}: {told}"})
    columns = ["node", "seeds it holds", "partners", "shares seeds with"]
    return [Text(text), facts, Table("Who shares seeds with whom", columns, rows)]
