"""Nodes in threads and in processes against D-SGD written out."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.noise import Batches, NodeNoise, Plan, Secret, noise
from noisedesign.noise.node.__main__ import _listening, main
from noisedesign.noise.node.exchange import Board, Server, ask
from noisedesign.noise.node.links import public_of
from noisedesign.noise.node.training import Examples, Run
from noisedesign.problem.problem import SpaceProblem, TimeProblem
from noisedesign.system.participation import BallsInBins
from tests.support import private_problems

ETA = 0.8


def design_of(problem: TimeProblem | SpaceProblem) -> Design:
    found = solve(problem).design
    assert found is not None
    return found


def data(nodes: int, m: int = 9) -> list[Examples]:
    generator = np.random.default_rng(3)
    made = []
    for u in range(nodes):
        features = np.hstack([generator.standard_normal((m, 2)), np.ones((m, 1))])
        made.append(Examples(features, (np.arange(m) % (u + 2) == 0).astype(float)))
    return made


def train(
    design: Design, folder: Path, parts: list[Examples], *, batch_size: int | None = None
) -> list[np.ndarray]:
    """Every node in a thread of its own."""
    plans = [design.node_plan(u, batch_size=batch_size) for u in range(len(parts))]
    boards = [
        Board(digest=p.digest, node=p.node, horizon=p.horizon, rounds=p.rounds) for p in plans
    ]
    servers = [Server(board).__enter__() for board in boards]
    addresses = {u: server.address for u, server in enumerate(servers)}
    models: dict[int, Any] = {}

    def one(u: int) -> None:
        (folder / str(u)).mkdir(exist_ok=True)
        run = Run(
            plan=plans[u], examples=parts[u], folder=folder / str(u), step_size=ETA, seconds=30
        )
        models[u] = run.train(lambda: addresses, boards[u])

    threads = [threading.Thread(target=one, args=(u,)) for u in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in servers:
        server.__exit__()
    return [models[u] for u in range(len(parts))]


def by_hand(
    design: Design,
    folder: Path,
    parts: list[Examples],
    size: float,
    *,
    batch_size: int | None = None,
) -> list[np.ndarray]:
    """theta <- W (theta - eta (clipped sum + noise) / size), noise from the nodes' secrets."""
    n, mixing = len(parts), design.problem.mixing
    assert mixing is not None
    sources = []
    for u in range(n):
        kept = folder / str(u)
        plan = design.node_plan(u, batch_size=batch_size)
        own = Secret.load(kept / "secret") if (kept / "secret").exists() else None
        shared = [s.name for s in plan.streams if s.source == "shared"]
        seeds = {name: Secret.load(kept / "seeds" / name) for name in shared}
        drawn = kept / "batch-secret"
        source = noise(
            plan,
            secret=own,
            seeds=seeds,
            batch_size=batch_size,
            record=False,
            batch_secret=Secret.load(drawn) if drawn.exists() else None,
        )
        sources.append(source)
    horizon, rule = sources[0].plan.horizon, sources[0].claim.rule
    clip = sources[0].claim.clip
    assert rule is not None
    assert clip is not None
    models = np.zeros((n, parts[0].dimension))
    for t in range(horizon):
        sent = models.copy()
        for u, part in enumerate(parts):
            total = np.zeros(part.dimension)
            count = len(part.labels)
            schedule = (
                Batches(rule, horizon=horizon, records=count)
                if rule.random is None
                else sources[u].batches(count)
            )
            for e in schedule[t]:
                x, sign = part.features[e], 2 * part.labels[e] - 1
                gradient = -sign * x / (1 + np.exp(sign * (x @ models[u])))
                total += gradient * min(1.0, clip / np.linalg.norm(gradient))
            sent[u] -= ETA / size * (total + sources[u].step(t, part.dimension))
        for _ in range(design.problem.rounds):
            sent = mixing @ sent
        models = sent
    return list(models)


@pytest.mark.parametrize(
    ("problem", "size"),
    [
        (private_problems.ring(), 3.0),
        (private_problems.path_of_seeds(), 9.0),
        (replace(private_problems.path_of_seeds(), rounds=3), 9.0),
    ],
    ids=["own noise over time", "shared seeds", "three gossip rounds"],
)
def test_nodes_train_as_the_equation_says(
    tmp_path: Path, problem: TimeProblem | SpaceProblem, size: float
) -> None:
    design, parts = design_of(problem), data(3)
    found = train(design, tmp_path, parts)
    np.testing.assert_allclose(found, by_hand(design, tmp_path, parts, size), rtol=1e-10)


@pytest.mark.parametrize("batch_size", [3, 7])
def test_divided_sums_get_as_much_noise(tmp_path: Path, batch_size: int) -> None:
    """Noise over what is noised is the same, whatever sums are divided by: with the keys of the
    divided design, z / B beside g / B, so that the models are those of g + z."""
    design, parts = design_of(private_problems.ring()), data(3)
    found = train(design, tmp_path, parts, batch_size=batch_size)
    by_hand_ = by_hand(design, tmp_path, parts, 3.0, batch_size=batch_size)
    np.testing.assert_allclose(found, by_hand_, rtol=1e-10)


class Randomized:
    """A design whose nodes put each of their records into a batch at random."""

    def __init__(self, design: Design, *, seeds_alone: bool = False) -> None:
        self.problem, self._design, self._seeds_alone = design.problem, design, seeds_alone

    def node_plan(self, node: int, *, batch_size: int | None = None) -> Plan:
        plan = self._design.node_plan(node, batch_size=batch_size)
        rule = BallsInBins(epochs=2, separation=plan.horizon // 2).rule
        streams = tuple(s for s in plan.streams if s.source != "own" or not self._seeds_alone)
        return replace(plan, claim=replace(plan.claim, rule=rule), streams=streams)


@pytest.mark.parametrize("seeds_alone", [False, True], ids=["own noise", "noise of seeds alone"])
def test_nodes_draw_their_batches(tmp_path: Path, seeds_alone: bool) -> None:
    """Sums are divided by the mean size, whatever was drawn; another node draws others."""
    problem = private_problems.path_of_seeds() if seeds_alone else private_problems.ring()
    design: Any = Randomized(design_of(problem), seeds_alone=seeds_alone)
    parts, horizon = data(3), design.node_plan(0).horizon
    found = train(design, tmp_path, parts)
    by_hand_ = by_hand(design, tmp_path, parts, 9 / (horizon // 2))
    np.testing.assert_allclose(found, by_hand_, rtol=1e-10)
    again = train(design, tmp_path, parts)  # what was drawn is drawn again: nothing is left to do
    np.testing.assert_array_equal(found, again)
    drawn = [tuple(map(tuple, noise_at(design, tmp_path, u).batches(9))) for u in range(len(parts))]
    assert len(set(drawn)) == 3


def noise_at(design: Any, folder: Path, node: int) -> NodeNoise:
    """From what the node has in its folder."""
    kept, plan = folder / str(node), design.node_plan(node)
    found = {path.name: Secret.load(path) for path in (kept / "seeds").glob("*")}
    secrets = {"secret": kept / "secret", "batch_secret": kept / "batch-secret"}
    own: dict[str, Any] = {name: path for name, path in secrets.items() if path.exists()}
    return noise(plan, seeds=found, record=False, **own)


def test_a_run_that_is_over_is_over(tmp_path: Path) -> None:
    design, parts = design_of(private_problems.ring()), data(3)
    first = train(design, tmp_path, parts)
    np.testing.assert_array_equal(train(design, tmp_path, parts), first)


def test_a_folder_of_other_data_is_told_apart(tmp_path: Path) -> None:
    design, parts = design_of(private_problems.ring()), data(3)
    train(design, tmp_path, parts)
    wider = Examples(np.ones((9, 5)), np.ones(9))
    turned = Examples(parts[0].features[::-1], parts[0].labels[::-1])
    for other in (wider, turned):  # in another order records would be in other batches
        run = Run(plan=design.node_plan(0), examples=other, folder=tmp_path / "0")
        with pytest.raises(InputError, match="folder: expected the state of this run"):
            run.train(dict, Board(digest="0" * 64, node=0, horizon=6))


@pytest.mark.parametrize("lost", ["record", "record and state", "steps", "state"])
def test_a_node_that_forgot_what_it_did_stops(lost: str, tmp_path: Path) -> None:
    design, parts = design_of(private_problems.ring()), data(3)
    train(design, tmp_path, parts)
    if lost.startswith("record"):
        (tmp_path / "0/record.sqlite3").unlink()
        if lost != "record":
            (tmp_path / "0/model.npz").unlink()
        expected = "record: expected a record in .* of the run that goes on, got one that does not"
    elif lost == "steps":
        with sqlite3.connect(tmp_path / "0/record.sqlite3") as database:
            database.execute("DELETE FROM steps WHERE step > 0")
        expected = "folder: expected the record of what noise was added, got none of step 1, in"
    else:
        (tmp_path / "0/model.npz").write_bytes(b"PK and no more")
        expected = "folder: expected a whole state, got "
    run = Run(plan=design.node_plan(0), examples=parts[0], folder=tmp_path / "0")
    with pytest.raises(InputError, match=expected):
        run.train(dict, Board(digest="0" * 64, node=0, horizon=6))


@pytest.mark.parametrize("before", ["_log", "_remember"])
def test_every_step_is_logged_wherever_a_node_stops(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(design_of(private_problems.ring()).node_plan(0), weights=((0, 1.0),))
    board = Board(digest=plan.digest, node=0, horizon=plan.horizon)
    run = Run(plan=plan, examples=data(1)[0], folder=tmp_path)
    unharmed, calls = getattr(Run, before), iter([False, False, True])

    def stopped(self: Run, *given: Any) -> None:
        if next(calls):
            raise KeyboardInterrupt
        unharmed(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Run, before, stopped)
        with pytest.raises(KeyboardInterrupt):
            run.train(dict, board)
    run.train(dict, board)
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert {int(line.split(",")[0]) for line in lines} == set(range(plan.horizon))


@pytest.mark.parametrize("wrong", [{"step_size": float("nan")}, {"seconds": -1.0}])
def test_numbers_that_no_node_can_run_with(wrong: dict[str, float], tmp_path: Path) -> None:
    design, parts = design_of(private_problems.ring()), data(3)
    with pytest.raises(InputError, match=f"{next(iter(wrong))}: expected a number in"):
        Run(plan=design.node_plan(0), examples=parts[0], folder=tmp_path, **wrong)


@pytest.mark.parametrize("missing", ["weights", "dealer"])
def test_plans_that_no_node_can_run(tmp_path: Path, missing: str) -> None:
    if missing == "dealer":
        dense = private_problems.path_of_seeds()
        problem = SpaceProblem(mixing=dense.mixing, privacy=dense.privacy)
        plan, words = design_of(problem).node_plan(0), "a dealer must deal"
    else:
        full = design_of(private_problems.ring()).node_plan(0)
        plan = Plan(digest=full.digest, node=0, horizon=6, streams=full.streams, claim=full.claim)
        words = "one with weights of W"
    with pytest.raises(InputError, match=words):
        Run(plan=plan, examples=data(1)[0], folder=tmp_path)


# --- restarts and absence -------------------------------------------------------------------------


class KilledError(Exception):
    """Stands for kill -9."""


def test_a_node_that_comes_back_still_has_what_a_neighbour_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node 0 averaged, remembered and was killed before node 1 had read its message."""
    design, parts = design_of(private_problems.path_of_seeds(2)), data(2)
    plan = design.node_plan(0)
    seeds = {s.name: Secret(bytes(range(32))) for s in plan.streams if s.source == "shared"}
    (tmp_path / "seeds").mkdir()
    for name, seed in seeds.items():
        seed.save(tmp_path / "seeds" / name)
    run = Run(plan=plan, examples=parts[0], folder=tmp_path, seconds=20)
    other = Board(digest=plan.digest, node=1, horizon=plan.horizon, rounds=plan.horizon)
    other.show("model", 0, np.ones(3).tobytes())
    shown: list[bytes] = []
    remember = Run._remember

    def remember_and_die(self: Run, *given: Any) -> None:
        remember(self, *given)
        raise KilledError

    with Server(other) as server:
        with monkeypatch.context() as patched:
            patched.setattr(Run, "_remember", remember_and_die)
            board = Board(digest=plan.digest, node=0, horizon=plan.horizon)
            with pytest.raises(KilledError):
                run.train(lambda: {1: server.address}, board)
            shown.append(board._bodies["model", 0])
        board = Board(digest=plan.digest, node=0, horizon=plan.horizon)
        threading.Thread(
            target=lambda: run.train(lambda: {1: server.address}, board), daemon=True
        ).start()
        with Server(board) as again:
            found = [
                ask(again.address, digest=plan.digest, node=1, kind="model", step=t, seconds=20)
                for t in (1, 0)  # it shows the next step by now, and the one before as well
            ]
            assert found[1] == shown[0]
            for t in range(1, plan.horizon):
                other.show("model", t, np.ones(3).tobytes())
            other.show("done", 0, b"")
            ask(again.address, digest=plan.digest, node=1, kind="done", seconds=20)


def test_neighbours_that_are_over_do_not_hold_a_node(tmp_path: Path) -> None:
    """All of them have its last message; it was killed while it waited for their word."""
    design, parts = design_of(private_problems.ring()), data(3)
    first = train(design, tmp_path, parts)
    board = Board(digest=design.node_plan(0).digest, node=0, horizon=6)
    quick = {"step_size": ETA, "seconds": 0.2}
    run = Run(plan=design.node_plan(0), examples=parts[0], folder=tmp_path / "0", **quick)
    nobody = {1: ("127.0.0.1", 9), 2: ("127.0.0.1", 9)}
    np.testing.assert_array_equal(run.train(lambda: nobody, board), first[0])


@pytest.mark.parametrize("rounds", [1, 2])
def test_without_a_node_that_is_gone_its_weight_is_ones_own(tmp_path: Path, rounds: int) -> None:
    """Node 2 of a triangle never was there: the others go on as a pair whose W has its weight on
    themselves, and their noise is as it was."""
    problem = replace(private_problems.ring(), rounds=rounds)
    design, parts = design_of(problem), data(3)
    plans = [design.node_plan(u) for u in range(2)]
    boards = [
        Board(digest=p.digest, node=p.node, horizon=p.horizon, rounds=p.rounds) for p in plans
    ]
    servers = [Server(board).__enter__() for board in boards]
    peers = {0: servers[0].address, 1: servers[1].address, 2: None}
    found: dict[int, Any] = {}

    def one(u: int) -> None:
        (tmp_path / str(u)).mkdir()
        examples, folder = parts[u], tmp_path / str(u)
        run = Run(plan=plans[u], examples=examples, folder=folder, step_size=ETA, seconds=20)
        found[u] = run.train(lambda: peers, boards[u])

    threads = [threading.Thread(target=one, args=(u,)) for u in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in servers:
        server.__exit__()
    weights = design.problem.mixing
    assert weights is not None
    pair = np.array([[1 - weights[0, 1], weights[0, 1]], [weights[1, 0], 1 - weights[1, 0]]])

    of_two: Any = SimpleNamespace(
        problem=SimpleNamespace(mixing=pair, rounds=rounds), node_plan=design.node_plan
    )
    expected = by_hand(of_two, tmp_path, parts[:2], 3.0)
    np.testing.assert_allclose([found[0], found[1]], expected, rtol=1e-10)
    assert json.loads((tmp_path / "0/gone.json").read_text()) == {"2": 0}


def test_a_secret_is_whole_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "secret.partial").write_text("")  # killed while it was written
    plan = replace(design_of(private_problems.ring()).node_plan(0), weights=((0, 1.0),))
    run = Run(plan=plan, examples=data(1)[0], folder=tmp_path)
    run.train(dict, Board(digest=plan.digest, node=0, horizon=plan.horizon))
    assert Secret.load(tmp_path / "secret")
    assert not (tmp_path / "secret.partial").exists()


# --- processes ------------------------------------------------------------------------------------


class Processes:
    """Every node a process, over sockets of this machine."""

    def __init__(
        self, folder: Path, design: Design, parts: list[Examples], **other: Design
    ) -> None:
        self.folder, self.running = folder, {}
        for u, part in enumerate(parts):
            kept = folder / str(u)
            kept.mkdir(parents=True, exist_ok=True)
            other.get(f"node{u}", design).node_plan(u).save(kept / "plan")
            np.savez(kept / "data.npz", features=part.features[:, :-1], labels=part.labels)

    def start(self, u: int, *, seconds: float = 30) -> None:
        kept = self.folder / str(u)
        command = [sys.executable, "-m", "noisedesign.noise.node", kept / "plan"]
        options = ["--data", kept / "data.npz", "--folder", kept, "--peers", self.folder / "peers"]
        self.running[u] = subprocess.Popen(
            [*map(str, [*command, *options]), f"--step-size={ETA}", f"--seconds={seconds}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def introduce(self, nodes: int) -> None:
        files = [self.folder / str(u) / "address" for u in range(nodes)]
        wait(lambda: all(file.exists() for file in files))
        told = ", ".join(f'"{u}": "{file.read_text()}"' for u, file in enumerate(files))
        (self.folder / "peers").write_text("{" + told + "}")

    def steps(self, u: int) -> int:
        log = self.folder / str(u) / "log.csv"
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def ended(self, u: int) -> tuple[int, str, str]:
        out, err = self.running[u].communicate(timeout=60)
        return self.running[u].returncode, out, err

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.kill()
            process.communicate()


def wait(holds: Any) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is of POSIX systems")
def test_a_killed_node_goes_on_with_the_same_noise(tmp_path: Path) -> None:
    design = design_of(private_problems.ring(epochs=30))
    parts = data(3)
    with Processes(tmp_path / "killed", design, parts) as nodes:

        def killed(u: int) -> None:
            """At any moment, while another one is held."""
            os.kill(nodes.running[u].pid, signal.SIGKILL)
            assert nodes.ended(u)[0] == -signal.SIGKILL
            nodes.start(u)

        for u in range(3):
            nodes.start(u)
        nodes.introduce(3)
        for held, u, step in ((2, 1, 3), (1, 0, 20)):
            wait(lambda held=held, step=step: nodes.steps(held) >= step)
            os.kill(nodes.running[held].pid, signal.SIGSTOP)
            assert nodes.running[held].poll() is None, "too fast for this test"
            killed(u)
            os.kill(nodes.running[held].pid, signal.SIGCONT)
        for u in range(3):
            code, out, err = nodes.ended(u)
            assert (code, err) == (0, "")
            assert "90 steps, (6, 1e-05)-DP, replace" in out
    found = [np.load(tmp_path / f"killed/{u}/model.npz")["model"] for u in range(3)]
    np.testing.assert_allclose(
        found, by_hand(design, tmp_path / "killed", parts, 3.0), rtol=1e-9, atol=1e-12
    )
    # The same secrets, and nobody killed: the same bits.
    for u in range(3):
        (tmp_path / f"whole/{u}").mkdir(parents=True)
        shutil.copy(tmp_path / f"killed/{u}/secret", tmp_path / f"whole/{u}/secret")
    whole = train(design, tmp_path / "whole", parts)
    np.testing.assert_array_equal(found, whole)


@pytest.mark.slow
def test_another_design_at_a_neighbour_stops_both(tmp_path: Path) -> None:
    design = design_of(private_problems.path_of_seeds(2))
    other = design_of(private_problems.path_of_seeds(2, epsilon=3.0))
    with Processes(tmp_path, design, data(2), node1=other) as nodes:
        for u in range(2):
            nodes.start(u)
        nodes.introduce(2)
        for u, (own, others) in enumerate([(design, other), (other, design)]):
            code, _, err = nodes.ended(u)
            assert code == 2
            assert err.startswith("error: peer: expected")
            assert err.count("\n") == 1
            for one in (own, others):
                assert one.node_plan(u).digest[:12] in err


def test_a_neighbour_that_never_comes_is_named(tmp_path: Path) -> None:
    design = design_of(private_problems.ring())
    with Processes(tmp_path, design, data(3)) as nodes:
        (tmp_path / "peers").write_text('{"1": "127.0.0.1:9", "2": "127.0.0.1:9"}')
        nodes.start(0, seconds=0.5)
        code, _, err = nodes.ended(0)
    assert code == 2
    assert "peer: expected an answer from 127.0.0.1:9 within 0.5 s, got none" in err


@pytest.mark.parametrize("missing", ["seed", "damaged"])
def test_a_seed_that_is_gone_stops_the_node(tmp_path: Path, missing: str) -> None:
    design, parts = design_of(private_problems.path_of_seeds()), data(3)
    train(design, tmp_path, parts)
    seed = next((tmp_path / "1/seeds").iterdir())
    if missing == "seed":
        seed.unlink()
    else:
        seed.write_text("not a seed\n")
    with pytest.raises(InputError, match="secret: expected"):
        Run(plan=design.node_plan(1), examples=parts[1], folder=tmp_path / "1").train(
            dict, Board(digest="0" * 64, node=1, horizon=4)
        )


# --- the command ----------------------------------------------------------------------------------


def node_command(folder: Path, *more: str) -> list[str]:
    plan = design_of(private_problems.ring()).node_plan(0)
    plan.save(folder / "plan")
    part = data(1)[0]
    np.savez(folder / "data.npz", features=part.features[:, :-1], labels=part.labels)
    where = [
        "--data",
        folder / "data.npz",
        "--folder",
        folder / "kept",
        "--peers",
        folder / "peers",
    ]
    return [*map(str, [folder / "plan", *where]), "--seconds", "0.2", *more]


HERE, FAR = '{"1": "127.0.0.1:9", "2": "127.0.0.1:9"}', '{"1": "127.0.0.1:9", "2": "10.0.0.1:9"}'


@pytest.mark.parametrize(
    ("peers", "more", "words"),
    [
        (HERE, ["--listen", "0.0.0.0:0"], "listen: expected an address of this machine, or"),
        (HERE, ["--listen", "node-0:7000"], "listen: expected an address of this machine, or"),
        (FAR, [], "peers.2: expected an address of this machine, or identities for TLS, got 10"),
        (HERE, [], "peer: expected an answer from 127.0.0.1:9 within"),
        (FAR, ["--plain"], "peer: expected an answer from 127.0.0.1:9 within"),
        (HERE, ["--plain", "--listen", "0.0.0.0:0"], "peer: expected an answer from 127.0.0.1:9"),
    ],
)
def test_nobody_talks_in_the_clear_beyond_this_machine_unless_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], peers: str, more: list[str], words: str
) -> None:
    (tmp_path / "peers").write_text(peers)
    assert main(node_command(tmp_path, *more)) == 2
    assert words in capsys.readouterr().err


def test_noise_against_those_who_see_a_part_needs_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On one machine, too: who reads the messages sees more than the observers of the design."""
    (tmp_path / "peers").write_text(HERE)
    command = node_command(tmp_path)
    plan = Plan.load(tmp_path / "plan")
    (tmp_path / "plan").unlink()
    replace(plan, claim=replace(plan.claim, trust="observers")).save(tmp_path / "plan")
    assert main(command) == 2
    assert "identities: expected those of all neighbours" in capsys.readouterr().err
    assert main([*command, "--plain"]) == 2
    assert "peer: expected an answer" in capsys.readouterr().err


def test_an_identity_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["identity", str(tmp_path / "ann")]) == 0
    first = capsys.readouterr().out
    assert main(["identity", str(tmp_path / "ann")]) == 0
    assert capsys.readouterr().out == first
    assert (tmp_path / "ann/identity").stat().st_mode & 0o077 == 0
    assert len(public_of(first.encode(), field="x")[1]) == 32
    (tmp_path / "ann/identity").write_text("no secret")
    assert main(["identity", str(tmp_path / "ann")]) == 2


def test_an_identity_alone_is_not_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "peers").write_text(HERE)
    assert main(["identity", str(tmp_path / "kept")]) == 0
    assert main(node_command(tmp_path)) == 2
    assert "identities: expected the certificate of node 1 at" in capsys.readouterr().err


def test_a_port_that_is_taken_for_good_is_left(tmp_path: Path) -> None:
    """Any free one will do, and neighbours ask for addresses again."""
    plan = design_of(private_problems.ring()).node_plan(0)
    board = Board(digest=plan.digest, node=0, horizon=plan.horizon)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (tmp_path / "address").write_text(f"127.0.0.1:{taken.getsockname()[1]}")
        given: dict[str, Any] = {"links": None, "safe": False, "freeing": 0.1}
        server = _listening(board, "127.0.0.1:0", tmp_path / "address", **given)
        server.__enter__()
        assert server.address[1] != taken.getsockname()[1]
        server.__exit__()
        with pytest.raises(InputError, match="address: expected a free port"):
            _listening(board, "127.0.0.1:7001", tmp_path / "address", **given)
