"""What one node must know: the same after its file, whatever the design was loaded from."""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.solve import Solution, solve
from noisedesign.families.toeplitz.solver import optimize_buffered, optimize_toeplitz
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.exports import read
from noisedesign.files.problem_file import load_problem
from noisedesign.forms import Noise
from noisedesign.forms.node_plan import node_plan
from noisedesign.mechanisms.baselines import baseline
from noisedesign.noise import Claim, Plan, Secret, noise
from noisedesign.noise.plan import claim_of_json
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.system.participation import FixedEpoch, MinSeparation, Participation
from noisedesign.system.workloads.toeplitz import prefix_workload
from noisedesign.tasks.export import export
from tests.support import ROOT, noise_plans
from tests.support.noise_plans import HORIZON, SECRET, drawn

PLANS = noise_plans.plans()
TARGET = PrivacyTarget(epsilon=3.0, delta=1e-5, clip=0.75)
GENERIC = {"npy": "npy", "csv": "csv", "mat": "mat", "safetensors": "safetensors"}
KINDS = {
    "full": "space-time/path-5-full-2x4",
    "R dealt": "whisper/florentine",
    "seeds": "space-structures/florentine-edge-local",
    "seeds and bands": "space-time/florentine-banded-decor",
    "dense": "examples/time-with-privacy",
    "banded-inverse": "time-structures/ring-12-banded-inverse-4x8",
}
_SOLVED: dict[str, Solution] = {}


def solved(kind: str) -> Solution:
    if kind not in _SOLVED:
        problem = load_problem(ROOT / "problems" / f"{KINDS[kind]}.toml").problem
        steps = 3 if problem.axes == "space" else None
        target = replace(problem.privacy or TARGET, steps=steps)
        _SOLVED[kind] = solve(replace(problem, privacy=target))
    return _SOLVED[kind]


def streaming(scheme: Participation | None = None) -> StreamingDesign:
    found = optimize_buffered(
        buffers=2,
        workload=prefix_workload(horizon=12),
        participation=scheme or FixedEpoch(epochs=2, separation=6),
    )
    return replace(found, privacy=TARGET)


def alike(one: Plan, other: Plan) -> None:
    for name in ("digest", "node", "nodes", "horizon", "streams", "claim"):
        assert getattr(one, name) == getattr(other, name), name
    assert type(one.filter) is type(other.filter)
    for plan in (one, other):
        assert (plan.couplings is None) == (one.couplings is None)
    pairs = [(one.filter.arrays(), other.filter.arrays())]
    if one.couplings is not None:
        pairs.append(({"couplings": one.couplings}, {"couplings": other.couplings}))
    for first, second in pairs:
        assert first.keys() == second.keys()
        for name, array in first.items():
            np.testing.assert_array_equal(array, second[name])


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_survives_its_file(name: str, tmp_path: Path) -> None:
    plan = PLANS[name]
    path = plan.save(tmp_path / "two.plan")
    again = Plan.load(path)
    alike(plan, again)
    assert again.name == plan.name
    np.testing.assert_array_equal(again.variances, plan.variances)
    for dtype in (np.float32, np.float64):
        one, other = drawn(plan), drawn(again)
        for t in range(HORIZON):
            np.testing.assert_array_equal(
                one.step(t, 9, dtype=dtype), other.step(t, 9, dtype=dtype)
            )
    assert again.save(tmp_path / "again.plan").stat().st_size == path.stat().st_size
    seeds = {s.name: noise_plans.SEEDS[s.name] for s in plan.streams if s.source == "shared"}
    secret = SECRET if plan.sources != {"shared"} else None
    by_path = noise(str(path), secret=secret, seeds=seeds, record=False)
    np.testing.assert_array_equal(by_path.step(2, 5), drawn(plan).step(2, 5))


def test_numpy_and_the_standard_library_read_it(tmp_path: Path) -> None:
    path = PLANS["banded"].save(tmp_path / "two.plan")
    with zipfile.ZipFile(path) as archive:
        said = json.loads(archive.read("plan.json"))
        bands = np.load(io.BytesIO(archive.read("strategy_bands.npy")), allow_pickle=False)
    assert said["format"] == "noisedesign-node"
    assert (said["node"], said["horizon"]) == (2, HORIZON)
    expected = asdict(noise_plans.CLAIM)
    expected["rule"] = {"most": 7, "min_sep": 1, "residue": None, "patterns": None}
    del expected["confidence"]
    assert said["claim"] == expected
    np.testing.assert_array_equal(bands, PLANS["banded"].filter.arrays()["strategy_bands"])


def test_a_node_learns_its_own_part_alone(tmp_path: Path) -> None:
    design = solved("seeds").design
    plan = design.node_plan(3)
    assert all(3 in stream.holders for stream in plan.streams)
    assert {s.name for s in plan.streams if s.source == "own"} <= {"node 3"}
    path = plan.save(tmp_path / "three.plan")
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["plan.json"]
        text = archive.read("plan.json").decode()
    coefficients = {s.coefficient for s in plan.streams}
    for u in set(range(15)) - {3}:
        for stream in design.node_plan(u).streams:
            if stream.coefficient not in coefficients:
                assert repr(stream.coefficient) not in text


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    said = json.loads(members.pop("plan.json"))
    change(said, members)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("plan.json", json.dumps(said))
        for name, content in members.items():
            archive.writestr(name, content)


def npy(array: Any, *, pickled: bool = False) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array(content, np.asarray(array), allow_pickle=pickled)
    return content.getvalue()


def changed(**values: Any) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    return lambda said, _: said.update(values)


def without(key: str) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    return lambda said, _: said.pop(key)


def claimed(**values: Any) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    return lambda said, _: said["claim"].update(values)


def streamed(**values: Any) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    return lambda said, _: said["streams"][0].update(values)


def with_array(array: Any, *, pickled: bool = False, **said: Any) -> Any:
    def change(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        members["strategy_bands.npy"] = npy(array, pickled=pickled)
        manifest["arrays"] = {"strategy_bands": list(np.shape(array))}
        manifest.update(said)

    return change


BANDS = PLANS["banded"].filter.arrays()["strategy_bands"]


@pytest.mark.parametrize(
    "change",
    [
        without("digest"),
        without("checksum"),
        without("streams"),
        without("arrays"),
        changed(format="another"),
        changed(digest="55"),
        changed(digest="no hex" * 10),
        changed(node=-1),
        changed(node="two"),
        changed(nodes=0),
        changed(horizon=0),
        changed(horizon=HORIZON + 1),
        changed(horizon=1.5),
        changed(filter="circulant"),
        changed(filter="toeplitz"),
        changed(streams=[]),
        changed(streams=[{"name": "node 2"}]),
        changed(streams=7),
        changed(arrays={"strategy_bands": [3, HORIZON], "more": [1]}),
        changed(claim=None),
        streamed(coefficient=float("nan")),
        streamed(coefficient="large"),
        streamed(source="nobody's"),
        streamed(holders=None),
        streamed(more=1),
        claimed(mu=-1.0),
        claimed(noise_stddev=float("inf")),
        claimed(clip="one"),
        claimed(batch_size=0),
        claimed(rule={"most": 0, "min_sep": 1, "residue": None, "patterns": None}),
        claimed(rule={"most": 1}),
        claimed(more=1),
        lambda said, _: said["claim"].pop("mu"),
        with_array(BANDS.astype(np.float32)),
        with_array(np.where(BANDS > 0.5, np.nan, BANDS)),
        with_array(-BANDS),
        with_array(BANDS[:, :-1]),
        with_array(BANDS[None]),
        with_array(BANDS.astype(object), pickled=True),
        with_array(BANDS, arrays={"strategy_bands": [HORIZON, 3]}),
        lambda said, members: members.clear(),
        lambda said, members: members.update({"strategy_bands.npy": b"\x93NUMPY nothing"}),
    ],
)
def test_files_that_are_damaged(change: Any, tmp_path: Path) -> None:
    path = PLANS["banded"].save(tmp_path / "two.plan")
    rewritten(path, change)
    expected = r"^plan: expected a whole .*two\.plan, got (?!.*was changed).* Take the file"
    with pytest.raises(InputError, match=expected):
        Plan.load(path)


@pytest.mark.parametrize(
    "change",
    [
        streamed(coefficient=0.01),
        claimed(clip=3.0),
        claimed(mu=0.01),
        claimed(batch_size=512),
        with_array(BANDS * 0.5),
        changed(checksum="00" * 32),
    ],
)
def test_plans_are_made_and_not_edited(change: Any, tmp_path: Path) -> None:
    """Numbers of a plan that would do, but are not those of the design."""
    path = PLANS["banded"].save(tmp_path / "two.plan")
    rewritten(path, change)
    with pytest.raises(InputError, match="plan: expected a whole .*two.plan, got .*was changed"):
        Plan.load(path)


def test_any_byte_that_changes_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    path = PLANS["blt"].save(tmp_path / "two.plan")
    content = path.read_bytes()
    refused = 0
    for at in range(0, len(content), 41):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x11]) + content[at + 1 :])
        try:
            found = Plan.load(path)
        except InputError:
            refused += 1
        else:  # a time stamp, say
            alike(found, PLANS["blt"])
    assert refused > 30


@pytest.mark.parametrize("part", [0, 10, 100, -30, -1])
def test_files_cut_short(part: int, tmp_path: Path) -> None:
    path = PLANS["banded"].save(tmp_path / "two.plan")
    path.write_bytes(path.read_bytes()[:part])
    with pytest.raises(InputError, match=r"^plan: expected a node's file, got .* is no whole one"):
        Plan.load(path)


def test_a_newer_version(tmp_path: Path) -> None:
    path = PLANS["banded"].save(tmp_path / "two.plan")
    rewritten(path, changed(version=2))
    expected = (
        r"plan.version: expected 1, got 2 \(int\)\. .*two.plan was written by another version"
    )
    with pytest.raises(InputError, match=expected):
        noise(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="plan: expected a file .*, got No such file"):
        noise(tmp_path / "nowhere")
    with pytest.raises(InputError, match="plan: expected a file .*, got Is a directory"):
        noise(tmp_path)


def test_the_file_of_a_design_says_which_call_takes_it(tmp_path: Path) -> None:
    """The runtime does not load the toolkit by itself."""
    path = save_design(solved("dense").design, tmp_path / "design.npz")
    expected = r"plan: expected a node's file, got .*design.npz.* noise\(noisedesign.load"
    with pytest.raises(InputError, match=expected):
        noise(path, node=0)
    exported = export(solved("dense").design, to="npy", path=tmp_path / "c.npy")[0]
    with pytest.raises(InputError, match=r"noisedesign.files.exports.read\(path\)"):
        noise(exported, node=0)


# --- whatever the design was loaded from ------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_plan_from_a_design_a_solution_and_a_file(kind: str, tmp_path: Path) -> None:
    solution = solved(kind)
    plan = solution.design.node_plan(1)
    stored = load_design(save_design(solution.design, tmp_path / "design.npz"))
    alike(stored.design.node_plan(1), plan)
    seeds = {s.name: SECRET.child(s.name, digest=plan.digest) for s in plan.streams}
    seeds = {s.name: seeds[s.name] for s in plan.streams if s.source == "shared"}
    secret = SECRET if plan.sources != {"shared"} else None
    for one in (solution, solution.design, stored, plan):
        found = noise(one, node=1, secret=secret, seeds=seeds, record=False)
        alike(found.plan, plan)


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("to", GENERIC)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_plan_from_an_export(kind: str, to: str, calibrated: bool, tmp_path: Path) -> None:
    """But of seeds: formats of arrays hold R, which is noise from a dealer."""
    design = solved(kind).design
    path = tmp_path / f"noise.{GENERIC[to]}"
    export(design, to=to, path=path, calibrated=calibrated)
    found, plan = read(path).node_plan(1), design.node_plan(1)
    alike(noise(read(path), node=1, secret=SECRET, record=False).plan, found)
    assert found.claim == plan.claim
    np.testing.assert_allclose(found.variances, plan.variances, rtol=1e-9)
    if "shared" in plan.sources:
        assert found.digest != plan.digest
        assert found.sources == {"dealt"}
    else:
        alike(found, plan)


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("kind", ["seeds", "seeds and bands"])
def test_the_same_plan_from_an_export_of_seeds(kind: str, calibrated: bool, tmp_path: Path) -> None:
    design = solved(kind).design
    export(design, to="seeds", path=tmp_path / "seeds.json", calibrated=calibrated)
    for u in range(15):
        alike(read(tmp_path / "seeds.json").node_plan(u), design.node_plan(u))


@pytest.mark.parametrize(
    "scheme",
    [
        FixedEpoch(epochs=2, separation=6),
        MinSeparation(horizon=12, separation=4, max_participations=2),
    ],
)
def test_the_same_plan_from_a_streaming_design(scheme: Participation, tmp_path: Path) -> None:
    design = streaming(scheme)
    plan = design.node_plan()
    assert (plan.node, plan.nodes, plan.horizon) == (0, None, 12)
    assert plan.claim.rule == scheme.rule
    assert plan.claim.noise_stddev == design.calibration.noise_stddev
    stored = load_design(save_design(design, tmp_path / "design.npz"))
    alike(stored.design.node_plan(4), design.node_plan(4))
    alike(noise(stored, node=4, record=False).plan, design.node_plan(4))
    for to in GENERIC:
        export(design, to=to, path=tmp_path / f"{to}.{to}")
        alike(read(tmp_path / f"{to}.{to}").node_plan(4), design.node_plan(4))


def test_streaming_designs_of_long_horizons_make_plans_in_little_memory() -> None:
    long = optimize_toeplitz(
        bands=4,
        workload=prefix_workload(horizon=20_000),
        participation=FixedEpoch(epochs=1, separation=20_000),
    )
    plan = replace(long, privacy=TARGET).node_plan()
    assert plan.variances[0] == pytest.approx(plan.claim.noise_stddev**2 * long.squared_sensitivity)
    assert plan.variances.shape == (20_000,)
    assert np.isfinite(drawn(plan).rounding_error_bound(np.float32))


COVARIANCES = {
    "uneven nodes": np.diag([4.0, 1.0, 0.25]),
    "dense": np.array([[2.0, -0.5, 0.3], [-0.5, 1.0, 0.2], [0.3, 0.2, 0.7]]),
    "a pair and a node": np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0], [1.0, 0.0, 0.75]]),
    "singular": np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 9.0]]),
}


@pytest.mark.parametrize("r", COVARIANCES.values(), ids=list(COVARIANCES))
def test_plans_of_all_nodes_are_the_covariance_together(r: np.ndarray) -> None:
    """Nodes that draw the same numbers take their coefficients times them, and every plan names
    all who do; what a node has alone has its own name."""
    found = Noise(steps=3, nodes=3, space=r)
    plans = [node_plan(found, PLANS["fresh"].claim, node=u) for u in range(3)]
    held = [{stream.name: stream for stream in plan.streams} for plan in plans]
    for u, v in itertools.product(range(3), repeat=2):
        both = held[u].keys() & held[v].keys()
        together = sum(held[u][k].coefficient * held[v][k].coefficient for k in both)
        assert together == pytest.approx(r[u, v], rel=1e-12, abs=1e-12)
    for stream in (stream for plan in plans for stream in plan.streams):
        having = {u for u in range(3) if stream.name in held[u]}
        assert having == set(stream.holders)


def test_whatever_differs_has_another_digest() -> None:
    design = solved("dense").design
    other = replace(design, problem=replace(design.problem, privacy=replace(TARGET, clip=0.5)))
    plans = [
        design.node_plan(0),
        design.node_plan(0, batch_size=10),
        design.node_plan(0, batch_size=11),
        other.node_plan(0),
        solved("banded-inverse").design.node_plan(0),
    ]
    assert len({plan.digest for plan in plans}) == 5
    assert design.node_plan(1).digest == plans[0].digest


def test_the_batch_size_that_is_said() -> None:
    for source in (solved("dense"), solved("dense").design, streaming()):
        assert noise(source, node=0, batch_size=12, record=False).claim.batch_size == 12
    with pytest.raises(InputError, match="batch_size: expected an integer >= 1, got 0"):
        noise(streaming(), batch_size=0, record=False)


# --- what has no plan -------------------------------------------------------------------------


@pytest.mark.parametrize("node", [-1, 9, 1.0, "Ann", None])
def test_nodes_that_there_are_not(node: Any) -> None:
    with pytest.raises(InputError, match=r"^node: expected"):
        solved("dense").design.node_plan(node)


def test_noise_that_protects_nobody(tmp_path: Path) -> None:
    problem = solved("dense").problem
    untold = solve(replace(problem, privacy=None)).design
    with pytest.raises(InputError, match="privacy: expected a target, got none. State epsilon"):
        untold.node_plan(0)
    export(untold, to="npy", path=tmp_path / "c.npy")
    with pytest.raises(InputError, match="multiply_by: expected the factor on the noise"):
        read(tmp_path / "c.npy").node_plan(0)
    with pytest.raises(InputError, match="privacy: expected a target"):
        replace(streaming(), privacy=None).node_plan()


def test_noise_for_a_trusted_server(tmp_path: Path) -> None:
    central = baseline(solved("dense").problem, "cdp")
    with pytest.raises(
        InputError, match="design: expected one that protects every message, got tr"
    ):
        central.node_plan(0)
    export(central, to="npy", path=tmp_path / "c.npy")
    with pytest.raises(InputError, match="export.trust: expected noise that protects every mess"):
        read(tmp_path / "c.npy").node_plan(0)


@pytest.mark.parametrize("key", ["rule", "clip", "noise_stddev", "participation"])
def test_exports_that_do_not_say_what_they_claim(key: str, tmp_path: Path) -> None:
    export(solved("dense").design, to="npy", path=tmp_path / "c.npy")
    found = read(tmp_path / "c.npy")
    del found.metadata[key]
    with pytest.raises(InputError, match=f"export: expected what an export says .*{key}.* again"):
        found.node_plan(0)


@pytest.mark.parametrize("value", [None, 3, np.eye(3), {"design": 1}, object()])
def test_no_designs(value: Any) -> None:
    with pytest.raises(InputError, match="design: expected a design, what was loaded of one, or t"):
        noise(value, node=0)


def test_claims_come_back_from_json() -> None:
    claim = noise_plans.CLAIM
    assert claim_of_json(json.loads(json.dumps(asdict(claim)))) == claim
    empty = Claim(noise_stddev=1.0)
    assert claim_of_json(json.loads(json.dumps(asdict(empty)))) == empty


def test_a_plan_of_any_node() -> None:
    plan = replace(PLANS["fresh"], nodes=None)
    assert plan.node_plan(9).node == 9
    assert plan.node_plan().node == 2
    secret = Secret(bytes(range(32)))
    assert noise(plan, node=9, secret=secret, record=False).plan.node == 9


@pytest.mark.parametrize("kind", PLANS)
def test_a_plan_of_one_of_nodes_that_differ(kind: str) -> None:
    plan = PLANS[kind]
    assert plan.node_plan(2) is plan
    for other in (0, 3, 4):
        with pytest.raises(InputError, match="node: expected 2, whose file this is"):
            plan.node_plan(other)
