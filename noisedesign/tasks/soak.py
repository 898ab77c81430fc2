"""A whole deployment on this machine for minutes: every node a process with files of its own, TLS
between them, nodes killed and started again, one that does not come back, run after run on the same
data. What they reached is compared with the same training computed here, step by step."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noisedesign.base import atomic, checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.nodes import Node, Row, row_of
from noisedesign.design.design import Design, design_of
from noisedesign.design.prefix import privacy_after
from noisedesign.files.picture_file import BLUE, GREY, ORANGE, legend_below, new_figure, style
from noisedesign.noise.agreement import Identity
from noisedesign.noise.keys import Secret
from noisedesign.noise.node.links import IDENTITIES, IDENTITY, SUFFIX as PEM, certificate
from noisedesign.noise.node.training import (
    BATCH_SECRET,
    SECRET,
    SEEDS,
    Examples,
    gone_in,
    secrets_in,
)
from noisedesign.noise.node.transcript import CHAIN, KEY
from noisedesign.noise.plan import OWN, SHARED, Plan
from noisedesign.privacy.accounting import epsilon_of
from noisedesign.privacy.ledger import Ledger
from noisedesign.tasks.audit_run import audit, batches_of, read_transcript, source_of
from noisedesign.tasks.deploy import NODE, PEERS, Deployed, deploy, partition, tell_addresses
from noisedesign.tasks.dropout import drop_out

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROWTH = 4.0  # MiB that a node may grow by after its start; Python's allocator moves about one
SAMPLE = 1.0  # seconds between two looks at the memory of the nodes
LOOK = 0.05  # seconds between two looks at what the nodes did
SETTLED = 5  # steps that a process has taken before its memory is judged: by then all is loaded
LOOKS = 20  # fewest looks at the memory of a process that its growth is told from
CLOSE = 1e-9  # of models, relative to their largest number and 1: sums in another order
MOST_RUNS = 1000
MADE = 6000, 20  # records and features of data that are made where none are given
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One run of all nodes.

    Attributes:
        run: from 1.
        steps: taken by every node that was not gone; fewer than the horizon where time was over.
        loss: of the mean of the models left, on all data; not private, and for rehearsals.
        accuracy: likewise.
        kills: how often a node was killed; each was started again.
        gone: the node that did not come back, and "" where time was over before.
        memory: largest resident memory of one node, MiB; nan where the system does not tell.
        growth: of the process that grew most after its start, MiB; nan where none lived long.
        difference: largest distance of a number of a model from the same training computed here.
        audited: nodes whose transcript holds, checked with secrets, data and neighbours.
        epsilon: of this run alone, by its own account.
        composed: of this run and those before it, by the ledger: under random participation that of
            any order of records, which is more.
    """

    run: int
    steps: int
    loss: float
    accuracy: float
    kills: int
    gone: str
    memory: float
    growth: float
    difference: float
    audited: int
    epsilon: float
    composed: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Soaked:
    """All runs, what went wrong, and what a report draws."""

    nodes: int
    minutes: float
    runs: tuple[Ran, ...]
    delta: float
    dropout: Mapping[str, object] | None
    problems: tuple[str, ...]
    losses: tuple[Array, ...]
    memory: tuple[tuple[float, ...], ...]  # minutes, and MiB of the smallest, mean and largest
    kills: tuple[float, ...]  # minutes
    interrupted: bool = False

    @property
    def outcome(self) -> str:
        """One sentence."""
        if self.problems:
            return f"Not as it should be: {'; '.join(self.problems)}."
        kills, steps = sum(one.kills for one in self.runs), sum(one.steps for one in self.runs)
        worst = max((one.difference for one in self.runs), default=0.0)
        return (
            f"{self.nodes} nodes took {steps} steps in {_counted(len(self.runs), 'run')} with "
            f"{_counted(kills, 'kill')}; "
            f"memory stayed, all transcripts hold, and models are those of the same training "
            f"computed here ({worst:.2g} apart at most)."
        )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The place in a soak that has been reached."""

    run: int
    step: int
    horizon: int
    kills: int
    minutes: float
    of: float

    def __str__(self) -> str:
        return (
            f"soak: {self.minutes:.1f} of {self.of:g} minutes, run {self.run}, "
            f"step {self.step} of {self.horizon}, {self.kills} kills"
        )


def soak(
    design: Design,
    folder: str | Path,
    *,
    data: str | Path | None = None,
    minutes: float = 30.0,
    kill_every: int = 10,
    gone: Node | None = None,
    runs: int = MOST_RUNS,
    step_size: float = 1.0,
    seconds: float = 120.0,
    progress: Callable[[Progress], None] | None = None,
) -> Soaked:
    """Train run after run until the minutes are over, or the runs done; a run is stopped then."""
    for name, value in (("minutes", minutes), ("step_size", step_size), ("seconds", seconds)):
        _checks.real(value, field=name, low=0)
    _checks.positive_int(kill_every, field="kill_every", minimum=0)
    _checks.positive_int(runs, field="runs")
    design = design_of(design)
    names, at = design.problem.nodes, atomic.made_folder(folder)
    plans = [design.node_plan(Row(u)) for u in range(len(names))]
    leaves = None if gone is None else row_of(gone, names, field="gone")
    if leaves is not None and len(names) < 3:
        raise InputError("gone", expected="two nodes to be left", got=f"{len(names) - 1}")
    kept = at / "ledger.json"
    if kept.exists():
        raise InputError("output", expected="a new folder", got=f"{at}, where a soak was")
    everything = made_data() if data is None else Examples.load(data)
    nodes = _prepared(at, plans, partition(everything, len(plans)))
    watch = _Watch(began=time.monotonic(), minutes=minutes, progress=progress)
    ledger, ran, losses = Ledger(kept), list[Ran](), list[Array]()
    while not watch.problems and len(ran) < runs and not (ran and watch.over):
        one = _Run(
            number=len(ran) + 1,
            folder=atomic.made_folder(at / f"run-{len(ran) + 1}"),
            design=design,
            nodes=nodes,
            watch=watch,
            kill_every=kill_every,
            gone=leaves,
            step_size=step_size,
            seconds=seconds,
        )
        found, curve = one.take(everything, ledger)
        ran.append(found)
        losses.append(curve)
    if not (any(one.steps for one in ran) or watch.problems or watch.interrupted):
        watch.problems.append("no step was taken in time")
    lost = None
    if leaves is not None and any(one.gone for one in ran):
        lost = drop_out(design, [Row(leaves)]).as_dict()
        if not still_holds(lost, design):
            watch.problems.append(f"without {lost['gone']} epsilon does not hold for those left")
    target = design.claim.delta
    assert target is not None
    return Soaked(
        nodes=len(plans),
        minutes=watch.now,
        runs=tuple(ran),
        delta=target,
        dropout=lost,
        problems=tuple(watch.problems),
        losses=tuple(losses),
        memory=tuple(watch.memory),
        kills=tuple(watch.kills),
        interrupted=watch.interrupted,
    )


def still_holds(lost: Mapping[str, object], design: Design) -> bool:
    """Whether those left by a node that is gone have the privacy of the design, or better."""
    mu, designed = lost["mu"], design.claim.mu
    assert isinstance(mu, float)
    assert designed is not None
    return mu <= designed * (1 + CLOSE)


def made_data(seed: int = 0) -> Examples:
    """Records whose label a linear rule tells from their features, but for one in ten."""
    generator = np.random.default_rng(seed)
    records, width = MADE
    features = generator.standard_normal((records, width)) / math.sqrt(width)
    labels = (features @ generator.standard_normal(width) > 0) ^ (generator.random(records) < 0.1)
    return Examples(np.hstack([features, np.ones((records, 1))]), labels.astype(float))


@dataclass(frozen=True, kw_only=True)
class _Node:
    """The data and the identity of a node, for all runs, in a folder of its own."""

    plan: Plan
    folder: Path
    examples: Examples


def _prepared(at: Path, plans: Sequence[Plan], parts: Sequence[Examples]) -> list[_Node]:
    known, found = atomic.made_folder(at / IDENTITIES), []
    for plan, part in zip(plans, parts, strict=True):
        folder = atomic.made_folder(at / "nodes" / str(plan.node))
        folder.chmod(0o700)
        if not (folder / IDENTITY).exists():
            Identity.new().save(folder / IDENTITY)
        pem = certificate(Identity.load(folder / IDENTITY))
        atomic.write_bytes(known / f"{plan.node}{PEM}", pem)
        np.savez(folder / "data.npz", features=part.features[:, :-1], labels=part.labels)
        found.append(_Node(plan=plan, folder=folder, examples=part))
    return found


@dataclass(kw_only=True)
class _Watch:
    """The clock of a soak, and all that was seen."""

    began: float
    minutes: float
    progress: Callable[[Progress], None] | None
    interrupted: bool = False
    problems: list[str] = field(default_factory=list)
    memory: list[tuple[float, ...]] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Minutes since the beginning."""
        return (time.monotonic() - self.began) / 60

    @property
    def over(self) -> bool:
        return self.interrupted or self.now >= self.minutes

    @contextlib.contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """Whoever stops a soak is told what it found until then."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True


class _Process:
    """One node in one run, started again where it was killed."""

    def __init__(self, node: _Node, state: Path, command: list[str]) -> None:
        self.node, self.state, self._command = node, state, command
        self.losses: dict[int, float] = {}
        self.lives: list[list[float]] = []  # MiB at every look once settled, a list a process
        self.largest = 0.0  # MiB
        self._read = 0
        self._words = (state / "words.txt").open("ab")
        self.start()

    def start(self) -> None:
        none = subprocess.DEVNULL
        alone = os.environ | dict.fromkeys(_THREADS, "1")
        self.running = subprocess.Popen(
            self._command,
            stdin=none,
            stdout=none,
            stderr=self._words,
            env=alone,
            start_new_session=True,  # who interrupts the soak does not interrupt its nodes
        )
        self.lives.append([])
        self._settled = self.look() + SETTLED

    def weigh(self, mib: float) -> bool:
        """Keep its memory at this moment; whether all that it needs is loaded by now."""
        self.largest = max(self.largest, mib)
        settled = len(self.losses) >= self._settled
        if settled:
            self.lives[-1].append(mib)
        return settled

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()

    def close(self) -> None:
        self.kill()
        self._words.close()

    @property
    def words(self) -> str:
        """The last line that it said about an error."""
        lines = (self.state / "words.txt").read_text("utf-8", "replace").strip().splitlines()
        return lines[-1].removeprefix("error: ") if lines else f"code {self.running.returncode}"

    def look(self) -> int:
        """Number of steps it has taken; reads what is new of its log."""
        log = self.state / "log.csv"
        if log.exists():
            with log.open("rb") as stream:
                stream.seek(self._read)
                new = stream.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.decode().splitlines():
                step, loss, _ = line.split(",")
                self.losses[int(step)] = float(loss)
        return len(self.losses)

    @property
    def growth(self) -> float:
        """MiB by which one process grew from its second quarter to its last, the largest."""
        grown = [
            float(
                np.median(life[-len(life) // 4 :])
                - np.median(life[len(life) // 4 : len(life) // 2])
            )
            for life in self.lives
            if len(life) >= LOOKS
        ]
        return max(grown, default=math.nan)


@dataclass(kw_only=True, eq=False)
class _Run:
    """One run: processes, kills, and the comparison when it is over."""

    number: int
    folder: Path
    design: Design
    nodes: Sequence[_Node]
    watch: _Watch
    kill_every: int
    gone: int | None
    step_size: float
    seconds: float

    def take(self, everything: Examples, ledger: Ledger) -> tuple[Ran, Array]:
        files = deploy(self.design, self.folder / "plans")
        states = [atomic.made_folder(self.folder / str(one.plan.node)) for one in files]
        self._book(ledger, states)
        with contextlib.ExitStack() as stack:
            processes = []
            for one, state, node in zip(files, states, self.nodes, strict=True):
                processes.append(_Process(node, state, self._command(one, state, node)))
                stack.callback(processes[-1].close)
            kills, left = self._attend(processes)
        steps = [_step_of(state) for state in states]
        alive = [u for u in range(len(states)) if u not in left]
        taken = min(steps[u] for u in alive)
        self._book_again(ledger, states)
        model = np.mean([_model_of(states[u], everything.dimension) for u in alive], axis=0)
        growth = [process.growth for process in processes]
        claim = self.design.claim
        assert claim.epsilon is not None
        assert claim.delta is not None
        found = Ran(
            run=self.number,
            steps=taken,
            loss=float(everything.losses(model).mean()),
            accuracy=everything.accuracy(model),
            kills=kills,
            gone=", ".join(self.design.problem.nodes[u] for u in left),
            memory=max(process.largest for process in processes) or math.nan,
            growth=max((one for one in growth if one == one), default=math.nan),
            difference=self._difference(states, steps),
            audited=self._audited(states, steps),
            epsilon=min(claim.epsilon, epsilon_of(mu=ledger.entries[-1].mu, delta=claim.delta)),
            composed=ledger.epsilon(delta=claim.delta),
        )
        self._judge(found, processes, states)
        curve = [[p.losses[t] for p in processes if t in p.losses] for t in range(taken)]
        return found, np.array([np.mean(row) for row in curve])

    def _command(self, one: Deployed, state: Path, node: _Node) -> list[str]:
        peers, identities = self.folder / PEERS, node.folder.parent.parent / IDENTITIES
        given = ["--data", node.folder / "data.npz", "--folder", state, "--peers", peers]
        given += ["--identity", node.folder / IDENTITY, "--identities", identities]
        given += ["--step-size", self.step_size, "--seconds", self.seconds]
        return [*NODE, *map(str, [one.path, *given])]

    def _book(self, ledger: Ledger, states: Sequence[Path]) -> None:
        """Draw the secrets of the nodes, and book them before anything is drawn from them."""
        self._secrets: list[Secret] = []
        for state, node in zip(states, self.nodes, strict=True):
            state.chmod(0o700)
            rule, own = node.plan.claim.rule, OWN in node.plan.sources
            drawn = not own and rule is not None and rule.random is not None
            for name, wanted in ((SECRET, own), (BATCH_SECRET, drawn), (KEY, True)):
                if wanted:
                    self._secrets.append(Secret.new())
                    self._secrets[-1].save(state / name)
        ledger.add(self.design, secret=self._secrets, name=f"run {self.number}")

    def _book_again(self, ledger: Ledger, states: Sequence[Path]) -> None:
        """A run that was stopped cost the steps whose messages any node showed."""
        if (sent := max(map(_shown_by, states))) and sent < self.nodes[0].plan.horizon:
            after = privacy_after(self.design, steps=sent)
            ledger.add(after, secret=self._secrets, name=f"run {self.number}", resume=True)

    # --- while it runs --------------------------------------------------------------------------

    def _attend(self, processes: list[_Process]) -> tuple[int, list[int]]:
        """Kill, start again, watch; return the number of kills, and who is gone."""
        horizon, watch = self.nodes[0].plan.horizon, self.watch
        states = [process.state for process in processes]
        order = [u for u in range(1, len(processes)) if u != self.gone]
        turn, left, looked, moved, least = 0, list[int](), 0.0, time.monotonic(), -1
        due = self.kill_every or horizon
        with watch.until_interrupted():
            while not watch.over and not watch.problems:
                tell_addresses(states, self.folder / PEERS, gone=left)
                steps = [process.look() for process in processes]
                now = min(steps[u] for u in range(len(steps)) if u not in left)
                if now > least:
                    least, moved = now, time.monotonic()
                elif time.monotonic() - moved > 2 * self.seconds:
                    watch.problems.append(
                        f"nobody went on from step {now} for {2 * self.seconds:g} s"
                    )
                if self.gone is not None and self.gone not in left and 2 * now >= horizon:
                    processes[self.gone].kill()
                    left.append(self.gone)
                if order and due <= now < horizon - 1:
                    victim, due = processes[order[turn % len(order)]], now + self.kill_every
                    if victim.running.poll() is None:
                        victim.kill()
                        victim.start()
                        watch.kills.append(watch.now)
                    turn += 1
                if not self._working(processes, left):
                    break
                if time.monotonic() - looked > SAMPLE:
                    looked = time.monotonic()
                    self._measure(processes, left)
                if watch.progress is not None:
                    total = len(watch.kills)
                    watch.progress(Progress(run=self.number, step=now, horizon=horizon, kills=total,
                                            minutes=watch.now, of=watch.minutes))  # fmt: skip
                time.sleep(LOOK)
        for process in processes:
            process.kill()
            process.look()
        return sum(len(process.lives) - 1 for process in processes), left

    def _working(self, processes: list[_Process], left: Sequence[int]) -> bool:
        """Whether any node has still to do; one that failed is a problem."""
        working = False
        for u, process in enumerate(processes):
            code = process.running.poll()
            if u in left or code == 0:
                continue
            working = True
            if code is not None:
                name = self.design.problem.nodes[u]
                said = process.words if code > 0 else f"signal {-code}"
                self.watch.problems.append(f"node {name} ended at step {process.look()}: {said}")
        return working

    def _measure(self, processes: list[_Process], left: Sequence[int]) -> None:
        running = [p for u, p in enumerate(processes) if u not in left]
        sizes = resident([process.running.pid for process in running])
        seen = [(one, mib) for one, mib in zip(running, sizes, strict=True) if mib]
        if known := [mib for process, mib in seen if process.weigh(mib)]:
            row = (self.watch.now, min(known), float(np.mean(known)), max(known))
            self.watch.memory.append(row)

    # --- when it is over ------------------------------------------------------------------------

    def _difference(self, states: Sequence[Path], steps: Sequence[int]) -> float:
        worst = 0.0
        for t, models in enumerate(self._computed_here(states, max(steps)), 1):
            for u, state in enumerate(states):
                if steps[u] == t:
                    off = np.abs(models[u] - _model_of(state, models.shape[1])).max()
                    worst = max(worst, float(off / (1 + np.abs(models[u]).max())))
        return worst

    def _computed_here(self, states: Sequence[Path], steps: int) -> Iterator[Array]:
        """The models of all nodes after every step, (n, d), from their secrets and data: written
        out from the equation, a record after another."""
        plans, gone = [node.plan for node in self.nodes], [gone_in(state) for state in states]
        sources = (
            [source_of(p, secrets_in(s, p)) for p, s in zip(plans, states, strict=True)]
            if steps
            else []
        )
        models = np.zeros((len(plans), self.nodes[0].examples.dimension))
        for t in range(steps):
            sent = models.copy()
            for u, (plan, source) in enumerate(zip(plans, sources, strict=True)):
                held, clip = self.nodes[u].examples, plan.claim.clip
                batches = batches_of(plan, source, len(held.labels))
                assert clip is not None
                assert batches is not None
                total = np.zeros(held.dimension)
                for record in batches[t]:
                    x, sign = held.features[record], 2 * held.labels[record] - 1
                    gradient = -sign * x / (1 + math.exp(min(sign * float(x @ models[u]), 700.0)))
                    total += gradient * min(
                        1.0, clip / max(float(np.linalg.norm(gradient)), 1e-300)
                    )
                total += source.step(t, held.dimension)
                sent[u] -= self.step_size / batches.expected_size * total
            for k in range(t * plans[0].rounds, (t + 1) * plans[0].rounds):
                heard = sent
                sent = np.zeros_like(heard)
                for u, plan in enumerate(plans):
                    for v, weight in plan.weights:
                        there = v == u or k < gone[u].get(v, k + 1)
                        sent[u] += weight * heard[v if there else u]
            models = sent
            yield models

    def _audited(self, states: Sequence[Path], steps: Sequence[int]) -> int:
        """Number of nodes whose transcripts hold, each checked with those of its neighbours."""
        good = 0
        for node, state in zip(self.nodes, states, strict=True):
            if not (state / CHAIN).exists():  # it did not come to its first message
                good += steps[node.plan.node] == 0
                continue
            others = [v for v, _ in node.plan.weights if v != node.plan.node]
            found = audit(
                state / CHAIN,
                plan=node.plan,
                secrets=state,
                data=node.folder / "data.npz",
                certificate=node.folder.parent.parent / IDENTITIES / f"{node.plan.node}{PEM}",
                neighbours=[file for v in others if (file := states[v] / CHAIN).exists()],
            )
            good += found.holds and found.steps >= steps[node.plan.node]
        return good

    def _judge(self, found: Ran, processes: Sequence[_Process], states: Sequence[Path]) -> None:
        """Note what a user has to know."""
        tell, names = self.watch.problems.append, self.design.problem.nodes
        for u, process in enumerate(processes):
            if process.growth > GROWTH:
                tell(f"node {names[u]} grew by {process.growth:.1f} MiB")
        if not found.difference <= CLOSE:
            tell(f"models are {found.difference:.3g} from the training computed here")
        if found.audited < len(processes):
            tell(f"{len(processes) - found.audited} transcripts do not hold")
        held: dict[str, set[str]] = {}
        for node, state in zip(self.nodes, states, strict=True):
            for stream in node.plan.streams:
                if stream.source == SHARED and (state / SEEDS / stream.name).exists():
                    seed = Secret.load(state / SEEDS / stream.name)
                    held.setdefault(stream.name, set()).add(seed.fingerprint)
        if apart := [name for name, prints in held.items() if len(prints) > 1]:
            tell(f"nodes disagree on {', '.join(apart)}")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _step_of(state: Path) -> int:
    file = state / "model.npz"
    return int(np.load(file)["step"]) if file.exists() else 0


def _shown_by(state: Path) -> int:
    """Number of steps whose message a node may have shown."""
    file = state / CHAIN
    return len(read_transcript(file).steps) if file.exists() else 0


def _model_of(state: Path, dimension: int) -> Array:
    file = state / "model.npz"
    return np.asarray(np.load(file)["model"]) if file.exists() else np.zeros(dimension)


def resident(processes: Sequence[int]) -> list[float | None]:
    """Resident memory of processes in MiB, as the system tells it; None of those it does not."""
    try:
        page = os.sysconf("SC_PAGE_SIZE") / 2**20
        texts = [Path(f"/proc/{one}/statm") for one in processes]
        if Path("/proc/self/statm").exists():
            return [_first(text, 1, page) for text in texts]
        listed = ["ps", "-o", "pid=,rss=", "-p", ",".join(map(str, processes))]
        said = subprocess.run(listed, capture_output=True, text=True, check=False).stdout
        sizes = {int(pid): int(kib) / 1024 for pid, kib in map(str.split, said.splitlines())}
        return [sizes.get(one) for one in processes]
    except (OSError, ValueError, AttributeError):
        return [None for _ in processes]


def _first(path: Path, word: int, scale: float) -> float | None:
    try:
        return int(path.read_text().split()[word]) * scale
    except (OSError, IndexError):
        return None


def record_of(found: Soaked) -> dict[str, object]:
    """All that a soak says, as JSON values."""
    return {
        "nodes": found.nodes,
        "minutes": found.minutes,
        "outcome": found.outcome,
        "problems": list(found.problems),
        "delta": found.delta,
        "runs": [asdict(one) for one in found.runs],
        "dropout": found.dropout,
        "memory": [list(row) for row in found.memory],
    }


@style()
def figure_of(found: Soaked) -> Figure:
    """Loss of the runs against their steps, memory of the nodes and kills against minutes."""
    figure = new_figure(width=6.4, height=6.4)
    loss, memory, kills = figure.subplots(3, 1)
    for at, curve in enumerate(found.losses):
        last = at == len(found.losses) - 1
        label = "last run" if last else "runs before" if at == 0 else None
        loss.plot(np.arange(1, len(curve) + 1), curve, color=BLUE if last else GREY, label=label)
    loss.set(xlabel="step", ylabel="mean loss of nodes")
    if found.memory:
        minutes, least, mean, most = np.array(found.memory).T
        mean[1:][np.diff(minutes) > 0.1] = np.nan  # between two runs there is none
        whole = np.isfinite(mean)
        memory.fill_between(minutes, least, most, where=whole, color=GREY, alpha=0.4)
        memory.plot(minutes, mean, color=BLUE)
        memory.set_ylim(bottom=0)
    memory.set(xlabel="minutes", ylabel="memory (MiB):\nall nodes, mean")
    times = np.sort(found.kills)
    kills.step(times, np.arange(1, len(times) + 1), where="post", color=ORANGE)
    kills.set(xlabel="minutes", ylabel="kills, all restarted")
    loss.set_title(f"{found.nodes} nodes, {len(found.runs)} runs, {found.minutes:.1f} minutes")
    legend_below(figure)
    return figure
