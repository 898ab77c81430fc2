"""Problem files of large graphs, and design files that are no n x n array: what they hold, and what
is refused of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.families.family import family_of
from noisedesign.families.polynomial import bound
from noisedesign.files.design_file import StoredDesign, load_design, save_design
from noisedesign.files.problem_file import load_problem, parse_problem
from noisedesign.forms import PolynomialCovariance
from noisedesign.tasks.verify import verify

TEXT = """
name = "small"
design = "space"

[graph]
kind = "barabasi-albert"
nodes = 100
links = 3
seed = 0

[privacy]
epsilon = 2.0
steps = 10

[structure]
space = "polynomial"
"""

Parts = dict[str, Array]


@pytest.fixture(scope="module")
def design() -> Iterator[Design]:
    """Of 100 nodes, by as few vectors as large graphs have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bound, "PROBED", 60 * 100)
        found = solve(parse_problem(TEXT, folder=Path()).problem, gap=0.5)
        assert found.status == "statistical"
        assert found.design is not None
        yield found.design


def stored(design: Design, folder: Path, *, text: str = TEXT) -> StoredDesign:
    found = load_design(
        save_design(design, folder / "small.npz", problem_text=text, overwrite=True)
    )
    assert isinstance(found, StoredDesign)
    return found


def test_a_file_holds_coefficients_diagonals_and_a_sparse_w(design: Design, tmp_path: Path) -> None:
    found = stored(design, tmp_path)
    n, entries = 100, found.design.problem.mixing.nnz
    assert {name: array.size for name, array in found.arrays.items()} == {
        "precision_coefficients": len(found.arrays["precision_coefficients"]),
        "noise_coefficients": len(found.arrays["noise_coefficients"]),
        "spectral_bound": 1,
        "node_weights": n,
        "node_scales": n,
        "mixing_data": entries,
        "mixing_indices": entries,
        "mixing_indptr": n + 1,
        "budget": n,
        "dual_weights": n,
    }
    assert found.manifest["confidence"] == bound.CONFIDENCE
    assert found.manifest["matrix"] == "precision_coefficients"
    assert 0 < found.manifest["uncertainty"] < 1
    with np.load(tmp_path / "small.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["node_scales"], found.arrays["node_scales"])


def test_it_is_read_as_it_was_and_verified_by_vectors_drawn_anew(
    design: Design, tmp_path: Path
) -> None:
    found = stored(design, tmp_path)
    assert found.design.certificate == design.certificate
    again = save_design(found.design, tmp_path / "again.npz", problem_text=TEXT)
    assert again.read_bytes() == (tmp_path / "small.npz").read_bytes()
    checks = [{check.name: check for check in verify(found).checks} for _ in range(2)]
    for of in checks:
        assert all(check.ok for check in of.values()), of
        assert of["confidence"].found == bound.CONFIDENCE
    first, second = (of["lower bound"].found for of in checks)
    assert first != second


def changed(design: Design, **fields: Any) -> Design:
    space = design.noise.space
    assert isinstance(space, PolynomialCovariance)
    return replace(design, noise=replace(design.noise, space=replace(space, **fields)))


def lowered(array: Array, by: float = 1e-5) -> Array:
    found = array.copy()
    found[11] *= 1 - by
    return found


def raised(design: Design, **claims: float) -> Design:
    return replace(design, certificate=replace(design.certificate, **claims))


@pytest.mark.parametrize(
    ("forge", "wrong"),
    [
        (lambda d, s, _: changed(d, scale=lowered(s.scale)), "feasible"),
        (lambda d, s, _: changed(d, mixing=s.mixing @ s.mixing), "structure"),
        (lambda d, s, off: raised(d, objective=d.objective / off), "objective"),
        (lambda d, s, off: raised(d, lower_bound=d.lower_bound * off), "lower bound"),
        (lambda d, s, _: raised(d, confidence=None), "confidence"),
        (lambda d, s, _: raised(d, uncertainty=0.0), "confidence"),
        (lambda d, s, _: raised(d, uncertainty=d.certificate.uncertainty / 3), "confidence"),
        (lambda d, s, _: raised(d, uncertainty=d.certificate.uncertainty * 3), "confidence"),
        (lambda d, s, _: replace(d, proof={"dual_weights": -s.weights}), "lower bound"),
    ],
)
def test_what_is_forged_is_refused(design: Design, forge: Any, wrong: str) -> None:
    uncertainty = design.certificate.uncertainty
    assert uncertainty is not None
    forged = forge(design, design.noise.space, (1 + uncertainty) ** 3)
    checks = {check.name: check.ok for check in verify(forged).checks}
    assert checks[wrong] is False


def test_multipliers_that_prove_little_do_not_loosen_what_is_claimed(design: Design) -> None:
    """What vectors leave open of a bound that its author made so is nothing to the objective."""
    weights = np.full(100, 5e-3)
    weights[0] = 1.0
    program = family_of(design.problem).program(design.problem)
    low, _ = found = bound.proved(program, weights)
    assert low > 0
    assert found.spread > 0.2
    proof = {"dual_weights": weights}
    forged = replace(
        raised(design, objective=0.85 * design.objective, lower_bound=low), proof=proof
    )
    more = replace(raised(design, lower_bound=1.2 * low), proof=proof)
    for one, wrong in ((forged, "objective"), (more, "lower bound")):
        assert {check.name: check.ok for check in verify(one).checks}[wrong] is False


def test_a_twentieth_may_be_claimed_otherwise_however_much_is_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the fewest vectors there are, which leave more open of objective and of bound."""
    monkeypatch.setattr(bound, "PROBED", 800)
    design = solve(parse_problem(TEXT, folder=Path()).problem, gap=0.9).design
    assert design is not None
    said = design.certificate
    assert 0.07 < said.uncertainty < said.rounding  # type: ignore[operator]
    for off, accepted in ((0.04, True), (0.06, False)):
        forged = raised(
            design, objective=said.objective * (1 - off), lower_bound=said.lower_bound * (1 + off)
        )
        checks = {check.name: check.ok for check in verify(forged).checks}
        assert (checks["objective"], checks["lower bound"]) == (accepted, accepted)


def test_another_w_in_the_file_is_another_problem(design: Design, tmp_path: Path) -> None:
    other = TEXT.replace("seed = 0", "seed = 1")
    checks = {check.name: check.ok for check in verify(stored(design, tmp_path, text=other)).checks}
    assert checks["problem"] is False
    assert not verify(design, problem=parse_problem(other, folder=tmp_path)).ok


def test_damaged_arrays_are_refused(design: Design, tmp_path: Path) -> None:
    space = design.noise.space
    assert isinstance(space, PolynomialCovariance)
    for fields, name in (
        ({"scale": -space.scale}, "node_scales"),
        ({"bound": 0.0}, "spectral_bound"),
        ({"noise": np.full(3, np.nan)}, "noise_coefficients"),
        ({"weights": space.weights[:-1]}, "node_weights"),
    ):
        with pytest.raises(InputError, match=name):
            stored(changed(design, **fields), tmp_path)


def test_the_same_text_is_large_or_small_by_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TEXT.split("[structure]")[0]
    problem = parse_problem(plain, folder=Path()).problem
    assert problem.structure.kind == "dense"
    assert not problem.sparse
    monkeypatch.setattr(settings, "DENSE_NODES", 99)
    large = parse_problem(plain, folder=Path()).problem
    assert large.structure.kind == "polynomial"
    assert large.sparse
    np.testing.assert_array_equal(large.mixing.toarray(), problem.mixing)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("[limits]\nmax_variance = 3.0", "limits.max_variance"),
        ("[error]\nhorizon = 4\nof = 'consensus'", "error"),
        ("[workload]\nrounds = 2", "workload.rounds"),
        ("[mixing]\ndropout = 0.1", "mixing"),
    ],
)
def test_what_takes_arrays_is_refused_of_large_graphs(
    more: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "DENSE_NODES", 99)
    with pytest.raises(InputError) as error:
        parse_problem(TEXT.split("[structure]")[0] + more, folder=Path())
    assert field in error.value.field


def test_the_error_of_all_iterates_is_stored_and_verified(tmp_path: Path) -> None:
    """H is the sum of (T + 1 - t) (W^t)^T W^t over the steps t, by hand."""
    text = TEXT.replace("nodes = 100", "nodes = 40") + "[error]\nhorizon = 3\n"
    problem = parse_problem(text.replace("steps = 10", "steps = 3"), folder=tmp_path).problem
    design = solve(problem).design
    assert design is not None
    w = problem.mixing.toarray()
    h = 3 * w.T @ w + 2 * (w @ w).T @ (w @ w) + (w @ w @ w).T @ (w @ w @ w)
    assert design.objective == pytest.approx(float(np.sum(h * design.covariance)), rel=1e-9)
    assert design.ldp_objective == pytest.approx(float(np.trace(h)), rel=1e-9)
    assert design.lower_bound <= design.objective <= 1.05 * design.lower_bound
    found = stored(design, tmp_path, text="")
    assert found.design.problem.horizon == 3
    assert verify(found, problem=problem).ok
    one = parse_problem(
        text.split("[error]")[0].replace("steps = 10", "steps = 3"), folder=tmp_path
    )
    assert not verify(found, problem=one).ok


def test_the_shipped_problem_of_100_000_nodes_is_listed_without_its_graph() -> None:
    from noisedesign.files.problem_set import shipped_problems

    found = {one.name: one.nodes for one in shipped_problems() if one.matches(["sparse-graphs"])}
    assert found == {
        "sparse-graphs/barabasi-albert-100000": 100_000,
        "sparse-graphs/barabasi-albert-2000": 2000,
        "sparse-graphs/erdos-renyi-1200": 1200,
        "sparse-graphs/erdos-renyi-1200-pairwise": 1200,
    }


@pytest.mark.slow
def test_the_shipped_problem_of_100_000_nodes_loads_sparse() -> None:
    problem = load_problem("sparse-graphs/barabasi-albert-100000").problem
    assert problem.sparse
    assert problem.mixing.shape == (100_000, 100_000)
