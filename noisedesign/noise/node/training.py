"""D-SGD of one node: theta_u <- sum_v W_uv (theta_v - eta (sum of clipped gradients + noise) / B),
and the average over neighbours once more for every further gossip round of the plan.

Everything a node must remember is in its folder: its secret, the seeds it shares, and after every
step the model. So it can be killed at any time and started again: it computes the same step with
the same noise, and its neighbours wait for it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from noisedesign.base import atomic, checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.noise.attendance import Attendance
from noisedesign.noise.batches import Batches, RandomBatches
from noisedesign.noise.keys import Secret
from noisedesign.noise.node.exchange import MODEL, Address, Board, Peers, ask
from noisedesign.noise.node.model import Examples
from noisedesign.noise.node.seeds import agreed
from noisedesign.noise.plan import DEALT, OWN, Plan
from noisedesign.noise.source import NodeNoise, noise

DONE = "done"


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One node in one run: its plan and data, the folder that it remembers in, eta over the mean of
    clipped gradients, how long it waits for a neighbour, and a function that is told step and loss,
    which is not private and for rehearsals."""

    plan: Plan
    examples: Examples
    folder: Path
    step_size: float = 1.0
    seconds: float = 120.0
    report: Callable[[int, float], None] | None = None

    def __post_init__(self) -> None:
        for name in ("step_size", "seconds"):
            _checks.real(getattr(self, name), field=name, low=0)
        if not self.plan.weights:
            remedy = "Design for a graph, whose W every node needs."
            raise InputError("plan", expected="one with weights of W", got="none", remedy=remedy)
        if self.plan.claim.clip is None or self.plan.claim.rule is None:
            raise InputError("plan.claim", expected="a clip and a participation", got="none")
        if DEALT in self.plan.sources:
            raise InputError(
                "plan",
                expected="noise that nodes draw by themselves",
                got="noise that a dealer must deal, who knows all of it",
                remedy='Design with [structure] space = "edge-local", or in time alone.',
            )

    def train(self, peers: Peers, board: Board) -> Array:
        """Return the model after the whole horizon, shape (d,), once its neighbours need nothing
        more. Their addresses are asked for again at every step."""
        source = self._source(peers, board)
        schedule, attendance = self._schedule(source)
        model, start = self._remembered(attendance, source.steps)
        claim = self.plan.claim
        assert claim.clip is not None
        divisor = claim.batch_size or 1
        rate = self.step_size * divisor / schedule.expected_size
        for t in range(start, self.plan.horizon):
            total = self.examples.clipped_sum(model, schedule[t], clip=claim.clip) / divisor
            source.add_([total], t, records=schedule[t].tolist())
            model = model - rate * total
            for k in range(t * self.plan.rounds, (t + 1) * self.plan.rounds):
                board.show(MODEL, k, model.astype("<f8").tobytes())
                model = self._mixed(model, k, peers())
            self._log(t, model)  # first: a step that is computed again is logged again
            self._remember(model, t + 1, attendance)
        self._wait_for_all(peers, board)
        return model

    def _schedule(self, source: NodeNoise) -> tuple[Batches | RandomBatches, Attendance]:
        """Who takes part when, and the check of it: drawn where the design says so."""
        rule, count = self.plan.claim.rule, len(self.examples.labels)
        assert rule is not None
        if rule.random is not None:
            drawn = source.batches(count)
            return drawn, source.attendance(drawn)
        batches = Batches(rule, horizon=self.plan.horizon, records=count)
        return batches, source.attendance()

    def _wait_for_all(self, peers: Peers, board: Board) -> None:
        """Neighbours that are restarted at the last step still need our message of it."""
        board.show(DONE, 0, b"")
        for v in self.plan.others:
            self._ask(peers()[v], DONE, 0)
        board.wait_until_told(DONE, self.plan.others, seconds=self.seconds)

    # --- secrets ----------------------------------------------------------------------------------

    def _source(self, peers: Peers, board: Board) -> NodeNoise:
        own = OWN in self.plan.sources
        secret = self._secret("secret") if own else None
        seeds = agreed(self.plan, self.folder, peers, board, seconds=self.seconds)
        record = self.folder / "record.sqlite3"
        claim = self.plan.claim
        drawn = not own and claim.rule is not None and claim.rule.random is not None
        begun = self.folder / "begun"
        found = noise(
            self.plan,
            secret=secret,
            seeds=seeds,
            batch_size=claim.batch_size,
            record=record,
            resume=begun.exists() or (self.folder / "model.npz").exists(),
            batch_secret=self._secret("batch-secret") if drawn else None,
        )
        begun.touch()  # the record knows the run: from now on one that does not was lost
        return found

    def _secret(self, name: str) -> Secret:
        file = self.folder / name
        if not file.exists():
            Secret.new().save(file)
        return Secret.load(file)

    # --- steps ------------------------------------------------------------------------------------

    def _mixed(self, own: Array, t: int, peers: Mapping[int, Address]) -> Array:
        """Return sum_v W_uv x_v of a gossip round, in the order of the nodes: the same bits after a
        restart."""
        total = np.zeros_like(own)
        for v, weight in self.plan.weights:
            sent = own
            if v != self.plan.node:
                sent = self._asked(peers[v], t, v, len(own))
            total += weight * sent
        return total

    def _asked(self, address: Address, t: int, v: int, dimension: int) -> Array:
        body = self._ask(
            address, MODEL, t, most=8 * dimension + (1 << 20)
        )  # to tell of another size
        if len(body) != 8 * dimension:
            expected = f"{dimension} numbers from node {v}"
            got = f"{len(body) / 8:g}"
            raise InputError("model", expected=expected, got=got, remedy="Give all the same data.")
        found = np.frombuffer(body, dtype="<f8").astype(np.float64)
        if not np.isfinite(found).all():
            raise InputError("model", expected=f"finite numbers from node {v}", got="others")
        return found

    def _ask(self, address: Address, kind: str, step: int, *, most: int = 0) -> bytes:
        return ask(
            address,
            digest=self.plan.digest,
            node=self.plan.node,
            kind=kind,
            step=step,
            seconds=self.seconds,
            most=most,
        )

    @cached_property
    def _name(self) -> str:
        """Name of the design and of these data in this order: others would have records take part
        again."""
        found = hashlib.sha256(f"{self.plan.digest} {self.examples.features.shape}".encode())
        for array in (self.examples.features, self.examples.labels):
            found.update(np.ascontiguousarray(array, dtype="<f8").data)
        return found.hexdigest()

    def _remembered(self, attendance: Attendance, steps: frozenset[int]) -> tuple[Array, int]:
        """The model, and the step that comes; ``steps`` are recorded."""
        file = self.folder / "model.npz"
        if not file.exists():
            return np.zeros(self.examples.dimension), 0
        remedy = "Name another folder."
        try:
            with np.load(file, allow_pickle=False) as arrays:
                model, step = arrays["model"], int(arrays["step"])
                told, same = str(arrays["attendance"]), str(arrays["run"]) == self._name
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            got = f"{file}: {error}"
            raise InputError("folder", expected="a whole state", got=got, remedy=remedy) from None
        if not same:
            got = "that of another design, or of other data"
            raise InputError("folder", expected="the state of this run", got=got, remedy=remedy)
        if not steps >= set(range(step)):
            got = f"none of step {min(set(range(step)) - steps)}, in a run that took {step}"
            expected = "the record of what noise was added"
            raise InputError("folder", expected=expected, got=got, remedy=remedy)
        attendance.load_state_dict(json.loads(told))
        return model, step

    def _remember(self, model: Array, step: int, attendance: Attendance) -> None:
        content = io.BytesIO()
        np.savez(
            content,
            model=model,
            step=np.array(step),
            run=np.array(self._name),
            attendance=np.array(json.dumps(attendance.state_dict())),
        )
        atomic.write_bytes(self.folder / "model.npz", content.getvalue())

    def _log(self, t: int, model: Array) -> None:
        loss, right = float(self.examples.losses(model).mean()), self.examples.accuracy(model)
        with (self.folder / "log.csv").open("a", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerow((t, loss, right))
        if self.report is not None:
            self.report(t, loss)
