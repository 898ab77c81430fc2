"""A design taken apart into a file a node, and a rehearsal with a process a node."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noisedesign.base import atomic, checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.file_kinds import NODE_PLAN
from noisedesign.base.nodes import Row
from noisedesign.design.design import Design, design_of, fixed_mixing
from noisedesign.design.unbounded import UnboundedDesign
from noisedesign.files.picture_file import BLUE, GREY, legend_below, new_figure, style
from noisedesign.noise.node.__main__ import ADDRESS, GONE
from noisedesign.noise.node.training import Examples
from noisedesign.noise.plan import DEALT, Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIX, PEERS = ".plan", "peers.json"
NODE = [sys.executable, "-m", "noisedesign.noise.node"]  # the command that runs one node


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """One node's file, and what is in it."""

    path: Path
    plan: Plan


def deploy(
    design: Design | UnboundedDesign, folder: str | Path, *, batch_size: int | None = None
) -> tuple[Deployed, ...]:
    """Write one file a node: its part of the noise, its row of W, horizon, clip, participation."""
    # No file has what another node adds alone, nor any secret: nodes draw and agree on theirs.
    held = getattr(design, "design", design)
    if isinstance(held, UnboundedDesign):  # of prefix sums one node, or all of them alike
        mixing = np.eye(1) if held.problem.mixing is None else held.problem.mixing
    else:
        held = design_of(design)
        mixing = fixed_mixing(held, once=False)
    plans = [held.node_plan(Row(u), batch_size=batch_size) for u in range(len(mixing))]
    if any(DEALT in plan.sources for plan in plans):
        raise InputError(
            "design",
            expected="noise that nodes draw by themselves",
            got="a covariance that a trusted party must deal, who knows all noise",
            remedy='Design with [structure] space = "edge-local" (or another structure of shared '
            "seeds), or in time alone; or deal it with noisedesign.noise.noise.",
        )
    made, target = [], atomic.made_folder(folder)
    for plan in plans:
        name = re.sub(r"[^\w.-]+", "_", plan.name) or str(plan.node)
        path = target / f"{plan.node:0{len(str(len(plans) - 1))}d}-{name}{SUFFIX}"
        atomic.check_replaceable(path, NODE_PLAN)
        made.append(Deployed(path=plan.save(path), plan=plan))
    return tuple(made)


def plans_in(folder: str | Path) -> tuple[Deployed, ...]:
    """Read the files of :func:`deploy` in a folder, in the order of the nodes."""
    at = _checks.path(folder, field="folder")
    found = [Deployed(path=path, plan=Plan.load(path)) for path in sorted(at.glob(f"*{SUFFIX}"))]
    found.sort(key=lambda one: one.plan.node)
    if not found:
        remedy = "Make them with `noisedesign deploy DESIGN -o FOLDER`."
        raise InputError("folder", expected="nodes' files", got=f"none in {at}", remedy=remedy)
    if len({one.plan.digest for one in found}) > 1:
        raise InputError("folder", expected="files of one design", got=f"of several in {at}")
    if [one.plan.node for one in found] != list(range(found[0].plan.nodes or len(found))):
        expected = f"a file for each of {found[0].plan.nodes} nodes"
        raise InputError("folder", expected=expected, got=f"{len(found)} in {at}")
    return tuple(found)


def partition(examples: Examples, nodes: int) -> list[Examples]:
    """Deal examples to the nodes in turn: any two have as many, up to one."""
    if len(examples.labels) < nodes:
        got = f"{len(examples.labels)}"
        raise InputError("data", expected=f"at least one example for {nodes} nodes", got=got)
    return [Examples(examples.features[u::nodes], examples.labels[u::nodes]) for u in range(nodes)]


# --- rehearsal ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Rehearsal:
    """The losses of every node on its own data after every step, shape (T, n); loss and accuracy of
    the average model on all data; and what every run was protected to."""

    losses: Array
    loss: float
    accuracy: float
    epsilon: float
    delta: float


def rehearse(
    folder: str | Path,
    data: str | Path,
    *,
    step_size: float = 1.0,
    seconds: float = 120.0,
    progress: Callable[[int, int], None] | None = None,
) -> Rehearsal:
    """Train on this machine, a process a node, on an .npz of ``features`` (m, p) and ``labels``."""
    # A node that is killed is started again, and goes on where it was, as a rehearsal does.
    for field, value in (("step_size", step_size), ("seconds", seconds)):
        _checks.real(value, field=field, low=0)
    nodes, at = plans_in(folder), Path(folder)
    if nodes[0].plan.unbounded:
        expected, got = "a run that ends", "one without an end"
        raise InputError("folder", expected=expected, got=got)
    everything = Examples.load(data)
    states = [atomic.made_folder(at / "nodes" / one.path.stem) for one in nodes]
    for state, part in zip(states, partition(everything, len(nodes)), strict=True):
        content = io.BytesIO()
        np.savez(content, features=part.features[:, :-1], labels=part.labels)
        atomic.write_bytes(state / "data.npz", content.getvalue())
    (at / PEERS).unlink(missing_ok=True)
    horizon, claim = nodes[0].plan.horizon, nodes[0].plan.claim
    with contextlib.ExitStack() as stack:  # no process outlives it
        processes = []
        for one, state in zip(nodes, states, strict=True):
            given = ["--data", state / "data.npz", "--folder", state, "--peers", at / PEERS]
            given += ["--step-size", step_size, "--seconds", seconds]
            processes.append(_Process(one, [*NODE, *map(str, [one.path, *given])]))
            stack.callback(processes[-1].stop)
        while sum(process.working() for process in processes):
            tell_addresses(states, at / PEERS)
            if progress is not None:
                progress(min(len(_lines(state)) for state in states), horizon)
            time.sleep(0.05)
    if progress is not None:
        progress(horizon, horizon)
    # The loss after every step is that of the last line about it.
    logs = [{int(step): float(loss) for step, loss, _ in _lines(state)} for state in states]
    model = np.mean([np.load(state / "model.npz")["model"] for state in states], axis=0)
    assert claim.epsilon is not None
    assert claim.delta is not None
    return Rehearsal(
        losses=np.array([[log[t] for log in logs] for t in range(horizon)]),
        loss=float(everything.losses(model).mean()),
        accuracy=everything.accuracy(model),
        epsilon=claim.epsilon,
        delta=claim.delta,
    )


class _Process:
    """A node, started again where the system killed it."""

    def __init__(self, one: Deployed, command: list[str]) -> None:
        self.one, self._command, self._restarts = one, command, 0
        self._running = self._start()

    def _start(self) -> subprocess.Popen[str]:
        none, pipe = subprocess.DEVNULL, subprocess.PIPE
        return subprocess.Popen(self._command, stdin=none, stdout=none, stderr=pipe, text=True)

    def working(self) -> bool:
        """Whether it is not done yet; an InputError says in its own words why it failed."""
        code = self._running.poll()
        if code is None or code == 0:
            return code is None
        assert self._running.stderr is not None
        with self._running.stderr as stream:
            said = stream.read()
        if code < 0 and self._restarts < 3:
            self._restarts, self._running = self._restarts + 1, self._start()
            return True
        told = said.strip().splitlines() or [f"exit code {code}"]
        expected = f"node {self.one.plan.name} to train to the end"
        raise InputError("rehearsal", expected=expected, got=told[-1].removeprefix("error: "))

    def stop(self) -> None:
        assert self._running.stderr is not None
        self._running.kill()
        self._running.wait()
        self._running.stderr.close()


def tell_addresses(states: Sequence[Path], path: Path, *, gone: Sequence[int] = ()) -> None:
    """Write the file of addresses, once every node has one."""
    try:
        found = {
            str(u): GONE if u in gone else (state / ADDRESS).read_text("utf-8")
            for u, state in enumerate(states)
        }
    except OSError:  # some node has none yet
        return
    text = json.dumps(found)
    if not path.exists() or path.read_text("utf-8") != text:
        with atomic.overwriting():
            atomic.write_text(path, text)


def _lines(state: Path) -> list[list[str]]:
    """The cells of the log of a node: step, loss and accuracy."""
    log = state / "log.csv"
    return [line.split(",") for line in log.read_text("utf-8").splitlines()] if log.exists() else []


@style()
def figure_of(found: Rehearsal) -> Figure:
    """The loss of every node against the step, and their mean."""
    figure = new_figure(width=6.4, height=3.6)
    axes = figure.subplots()
    steps = np.arange(1, len(found.losses) + 1)
    nodes = axes.plot(steps, found.losses, color=GREY, linewidth=0.7, alpha=0.7)
    nodes[0].set_label("a node")
    axes.plot(steps, found.losses.mean(axis=1), color=BLUE, linewidth=2, label="mean of the nodes")
    axes.set(xlabel="step", ylabel="loss on a node's own data")
    axes.set_title(f"({found.epsilon:g}, {found.delta:g})-DP, accuracy {found.accuracy:.3f}")
    legend_below(figure)
    return figure
