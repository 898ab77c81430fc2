"""Every public call of ``noisedesign.noise``, every argument, every kind of wrong value: an
InputError or an answer, as for the rest of the package.

What node noise is asked for every day is wrong in ways of its own: other dtypes, other records,
secrets and plans in each other's place. These are in ``OWN``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.noise import (
    Agreement,
    Attendance,
    Batches,
    Identity,
    NodeNoise,
    Plan,
    RandomBatches,
    Randomness,
    Record,
    Rule,
    Secret,
    deal,
    integer_noise,
    noise,
)
from noisedesign.noise.batches import drawn_batches
from tests.support.small_designs import PATH_3
from tests.support.trainers import random_plan, secret
from tests.support.wrong_values import WRONG, mistakes

SCHEME = nd.participation.FixedEpoch(epochs=2, separation=2)
TARGET = nd.PrivacyTarget(epsilon=3.0, delta=1e-5, clip=0.5)


def design_of(problem: Any) -> Any:
    found = nd.solve(problem).design
    assert found is not None
    return found


TIME = design_of(
    nd.TimeProblem.prefix(
        participation=SCHEME, privacy=TARGET, structure=nd.TimeStructure(kind="banded", bands=2)
    )
)
SEEDS = design_of(
    nd.SpaceProblem(
        mixing=PATH_3,
        participation=SCHEME,
        privacy=TARGET,
        structure=nd.SpaceStructure(kind="decor"),
    )
)
RANDOM = random_plan(nd.participation.BallsInBins(epochs=2, separation=3))
SHARED_RANDOM = replace(
    RANDOM, streams=(replace(RANDOM.streams[0], name="seed 0", source="shared", holders=(0, 1)),)
)
PLAN, SHARED = TIME.node_plan(), SEEDS.node_plan(0)
RULE = PLAN.claim.rule
assert RULE is not None
ONES = bytes(range(32))

OWN: dict[str, Callable[[], Any]] = {
    "float16": lambda: np.ones(3, dtype=np.float16),
    "read-only": lambda: np.broadcast_to(np.ones(3), (2, 3)),
    "not contiguous": lambda: np.ones((4, 4))[:, ::2],
    "list of float16": lambda: [np.ones(3, dtype=np.float16)],
    "list of nan": lambda: [np.full(3, np.nan)],
    "list of lists": lambda: [[1.0, 2.0]],
    "zero bytes": lambda: bytes(32),
    "bytes too many": lambda: bytes(range(33)),
    "bytearray": lambda: bytearray(ONES),
    "memory": lambda: memoryview(ONES),
    "plan": lambda: PLAN,
    "plan of seeds": lambda: SHARED,
    "secret": lambda: Secret(ONES),
    "secrets": lambda: {"a": Secret(ONES)},
    "source": lambda: noise(PLAN, record=False),
    "rule": lambda: RULE,
    "attendance": lambda: Attendance(RULE, horizon=4),
    "solution": lambda: nd.solve(nd.SpaceProblem(mixing=PATH_3)),
    "identity": Identity.new,
    "pair": lambda: (1, 2),
    "dict of None": lambda: {None: None},
    "dict by number": lambda: {0: b"abc"},
    "state": lambda: {"version": 1, "digest": 1, "node": [], "secrets": None, "added": "x"},
    "steps": lambda: {"steps": [[[], [1]], [1]]},
    "dtype": lambda: np.float16,
    "float64 word": lambda: "float64",
    "structured dtype": lambda: np.dtype([("a", "f8")]),
    "slice": lambda: slice(3),
}

EVERY = WRONG | OWN


def source(**kwargs: Any) -> NodeNoise:
    return noise(PLAN, record=False, **kwargs)


def integers() -> Any:
    return integer_noise(PLAN, record=False)


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "noise": (
        noise,
        {
            "design": PLAN,
            "node": 0,
            "secret": None,
            "seeds": None,
            "clip": 0.5,
            "batch_size": None,
            "record": False,
            "resume": False,
        },
    ),
    "noise of seeds": (
        lambda **kwargs: noise(SHARED, **{"record": False, **kwargs}),
        {"secret": None, "seeds": deal([SHARED], Secret(ONES))[0]},
    ),
    "noise of shared seeds and batches": (
        lambda **kwargs: noise(SHARED_RANDOM, record=False, **kwargs),
        {"seeds": {"seed 0": secret(5)}, "batch_secret": secret(6)},
    ),
    "NodeNoise of batches": (
        lambda **kwargs: NodeNoise(
            SHARED_RANDOM,
            secret=None,
            seeds={"seed 0": secret(5)},
            record=None,
            resume=False,
            **kwargs,
        ),
        {"batch_secret": secret(6)},
    ),
    "noise of a design": (
        lambda **kwargs: noise(SEEDS, record=False, **kwargs),
        {"node": 0, "seeds": deal([SHARED], Secret(ONES))[0]},
    ),
    "integer_noise": (
        integer_noise,
        {"design": PLAN, "node": 0, "secret": None, "seeds": None, "record": False, "clip": 0.5},
    ),
    "Design.node_plan": (SEEDS.node_plan, {"node": 0, "batch_size": 4}),
    "Plan.node_plan": (PLAN.node_plan, {"node": 0, "batch_size": None}),
    "NodeNoise": (
        NodeNoise,
        {"plan": PLAN, "secret": Secret(ONES), "seeds": {}, "record": None, "resume": False},
    ),
    "NodeNoise.step": (
        lambda **kwargs: source().step(**kwargs),
        {"t": 0, "shape": (2, 3), "dtype": np.float32, "start": 0},
    ),
    "NodeNoise.step out": (lambda **kwargs: source().step(0, **kwargs), {"out": np.empty(3)}),
    "NodeNoise.add_": (
        lambda **kwargs: source().add_(**kwargs),
        {
            "parameters": [np.full(3, 0.1), np.full((2, 2), 0.1, dtype=np.float32)],
            "t": 0,
            "records": range(1000),
        },
    ),
    "NodeNoise.check_sum": (
        lambda **kwargs: source().check_sum(**kwargs),
        {"norm": 0.25, "records": 2},
    ),
    "NodeNoise.add_ one": (
        lambda **kwargs: source().add_([np.ones(2), kwargs["array"]], 0, records=6),
        {"array": np.ones(3)},
    ),
    "NodeNoise.load_state_dict": (
        lambda **kwargs: source(secret=ONES).load_state_dict(**kwargs),
        {"state": source(secret=ONES).state_dict()},
    ),
    "NodeNoise.rounding_error_bound": (source().rounding_error_bound, {"dtype": np.float32}),
    "IntegerNoise.step": (
        lambda **kwargs: integers().step(**kwargs),
        {"t": 0, "shape": 3, "start": 0},
    ),
    "IntegerNoise.step out": (
        lambda **kwargs: integers().step(0, **kwargs),
        {"out": np.empty(3, dtype=np.int64)},
    ),
    "IntegerNoise.lattice_sum": (
        lambda **kwargs: integers().lattice_sum(**kwargs),
        {"gradients": [np.full((2, 3), 0.1)], "clip": True},
    ),
    "IntegerNoise.lattice_sum one": (
        lambda **kwargs: integers().lattice_sum([np.zeros((3, 1)), kwargs["array"]], clip=True),
        {"array": np.ones((3, 2))},
    ),
    "IntegerNoise.release": (
        lambda **kwargs: integers().release(**kwargs),
        {"gradients": [np.arange(3)], "t": 0},
    ),
    "IntegerNoise.values": (
        lambda **kwargs: integers().values(**kwargs),
        {"released": [np.arange(3)]},
    ),
    "Secret": (Secret, {"value": ONES}),
    "Secret.of": (Secret.of, {"value": ONES}),
    "Secret.load": (Secret.load, {"path": "there.secret"}),
    "Secret.save": (Secret.new().save, {"path": "new.secret"}),
    "Secret.child": (Secret.new().child, {"name": "seed 1", "digest": "ab" * 32}),
    "Secret.step_key": (
        Secret.new().step_key,
        {"stream": "node 0", "step": 3, "digest": "ab" * 32, "use": "noise"},
    ),
    "Randomness": (
        Randomness,
        {
            "kind": "b-min-sep",
            "rate": 0.5,
            "warm_start": True,
            "batch_size_limit": 3,
            "group_size": 4,
        },
    ),
    "RandomBatches": (RandomBatches, {"plan": RANDOM, "records": 6, "secret": secret(1)}),
    "NodeNoise.batches": (
        lambda **kwargs: noise(RANDOM, secret=secret(1), record=False).batches(**kwargs),
        {"records": 6},
    ),
    "drawn_batches": (
        drawn_batches,
        {"rule": RANDOM.claim.rule, "horizon": 6, "records": 6, "rng": np.random.default_rng(0)},
    ),
    "Attendance of random participation": (
        Attendance,
        {
            "rule": RANDOM.claim.rule,
            "horizon": 6,
            "batches": RandomBatches(RANDOM, records=6, secret=secret(1)),
        },
    ),
    "Rule": (Rule, {"most": 2, "min_sep": 1, "residue": 2, "patterns": ((0, 2), (1, 3))}),
    "Attendance": (Attendance, {"rule": RULE, "horizon": 4}),
    "Attendance.check": (
        lambda **kwargs: Attendance(RULE, horizon=4).check(**kwargs),
        {"records": [1, 2], "t": 0},
    ),
    "Attendance.check one": (
        lambda **kwargs: Attendance(RULE, horizon=4).check([kwargs["record"]], 0),
        {"record": "a"},
    ),
    "Attendance.load_state_dict": (
        lambda **kwargs: Attendance(RULE, horizon=4).load_state_dict(**kwargs),
        {"state": {"steps": [["a", [0, 2]]]}},
    ),
    "Batches": (Batches, {"rule": RULE, "horizon": 4, "records": 6, "batch_size": 3, "seed": 0}),
    "Batches[]": (lambda **kwargs: Batches(RULE, horizon=4, records=6)[kwargs["t"]], {"t": 0}),
    "Plan.save": (PLAN.save, {"path": "new.plan"}),
    "Plan.load": (Plan.load, {"path": "there.plan"}),
    "Record": (Record, {"path": "records.sqlite3"}),
    "Record.steps": (
        lambda **kwargs: Record("records.sqlite3").steps(**kwargs),
        {"secret": "ab" * 16, "node": 0},
    ),
    "Agreement": (Agreement, {"plan": SHARED, "identity": None, "identities": None}),
    "Agreement with identities": (
        lambda **kwargs: Agreement(SHARED, **kwargs),
        {"identity": Identity.new(), "identities": {1: Identity.new().public}},
    ),
    "Agreement.take": (
        lambda **kwargs: Agreement(SHARED).take(**kwargs),
        {"message": Agreement(SEEDS.node_plan(1)).start()[0][1]},
    ),
    "Identity": (Identity, {"secret": Secret(ONES)}),
    "Identity.sign": (Identity.new().sign, {"content": b"a message"}),
    "Identity.load": (Identity.load, {"path": "there.identity"}),
    "Identity.save": (Identity.new().save, {"path": "new.identity"}),
    "deal": (deal, {"plans": [SHARED], "secret": Secret(ONES)}),
}

ANY = {("Attendance.check one", "record"): "anything that has a hash tells records apart"}
"""What may be nearly anything."""


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOISEDESIGN_RECORDS", str(tmp_path / "records.sqlite3"))
    Secret(ONES).save("there.secret")
    Identity.new().save("there.identity")
    PLAN.save("there.plan")


@pytest.mark.parametrize(
    ("name", "argument"), [(name, key) for name, (_, right) in CALLS.items() for key in right]
)
def test_a_wrong_value_is_an_input_error(name: str, argument: str) -> None:
    function, right = CALLS[name]
    others, refused = mistakes(function, right, argument, wrong=EVERY)
    assert not others, "\n".join(others)
    assert refused > 10 or (name, argument) in ANY


@pytest.mark.parametrize("name", CALLS)
def test_what_is_right_is_taken(name: str) -> None:
    """Else the test above would say nothing."""
    function, right = CALLS[name]
    function(**right)
