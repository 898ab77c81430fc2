"""Parts as actors on the workers of a Dask cluster, one a worker; letters go from worker to worker.

A call of the client is a whole solve. It watches meanwhile: where a worker is lost, all others are
told, whose calls end with an error then, and so does the client's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from noisedesign.base.checks import InputError
from noisedesign.base.cluster import connected
from noisedesign.base.extras import need
from noisedesign.distributed.here import first_of
from noisedesign.distributed.mail import Box, LostError, Mail, Tag
from noisedesign.distributed.work import Asked, Tell, done

LOOKED = 0.5  # seconds between two looks at workers
PATIENCE = 30.0  # seconds that a scheduler has to answer


class Letter:
    """A letter under way, whose envelope is emptied when it has arrived: a call of an actor refers
    to itself, and keeps what it sent until Python looks for such cycles, gigabytes later."""

    def __init__(self, other: Any, sender: int, tag: Tag, data: Any) -> None:
        self._envelope = [data]
        self._answer = other.put(sender, tag, self._envelope)

    def done(self) -> bool:
        if arrived := bool(self._answer.done()):
            self._envelope.clear()
        return arrived

    def result(self) -> None:
        self._answer.result()


class Actor:
    """A part on a worker. What is ``async`` runs while its own work does, in another thread."""

    def __init__(self, index: int, silence: float) -> None:
        self.index, self._silence = index, silence
        self._box, self._stage = Box(), ""

    def work(self, asked: Asked, others: dict[int, Any]) -> tuple[str, Any]:
        """Do a part's work: "found" and it, or "failed" and the error."""
        put: dict[int, Callable[[int, Tag, Any], Any]] = {
            k: partial(Letter, one) for k, one in others.items()
        }
        mail = Mail(self.index, self._box, put, silence=self._silence)
        try:
            return "found", done(asked, mail, self._tell)
        except Exception as error:  # pickled as it is; Dask would wrap it
            return "failed", error

    def _tell(self, stage: str) -> None:
        self._stage = stage

    async def put(self, sender: int, tag: Tag, envelope: list[Any]) -> None:
        self._box.put(sender, tag, envelope[0])

    async def end(self, reason: str) -> None:
        self._box.end(reason)

    async def stage(self) -> str:
        self._box.heard()
        return self._stage


def run_on_cluster(
    asked: Asked, *, parts: int, address: str, silence: float, tell: Tell
) -> list[dict[str, Any]]:
    """Return what every part finds, in their order; LostError where a worker is lost."""
    need("distributed", field="cluster")
    with connected(address, timeout=PATIENCE) as client, client.as_current():
        workers = sorted(client.nthreads())[:parts]
        if len(workers) < parts:
            remedy = "Start more, or store the graph in fewer parts."
            expected = f"{parts} workers, one a part"
            raise InputError("cluster", expected=expected, got=f"{len(workers)}", remedy=remedy)
        made = [
            client.submit(Actor, k, silence, actor=True, workers=[worker], pure=False)
            for k, worker in enumerate(workers)
        ]
        actors = [one.result(timeout=PATIENCE) for one in made]
        calls = []
        for k, actor in enumerate(actors):
            others = {j: other for j, other in enumerate(actors) if j != k}
            calls.append(actor.work(asked, others))
        try:
            return _watched(client, calls, actors, workers, tell)
        except BaseException as error:
            reason = f"the call was ended: {error or type(error).__name__}"
            for actor in actors:
                with suppress(Exception):  # of the worker that was lost
                    actor.end(reason)
            raise


def _watched(
    client: Any, calls: Sequence[Any], actors: Sequence[Any], workers: Sequence[str], tell: Tell
) -> list[dict[str, Any]]:
    """The results of all calls; the first error, or the first worker that is lost, ends them."""
    stage, asking = "", [actor.stage() for actor in actors]
    while not all(call.done() for call in calls):
        time.sleep(LOOKED)
        present = set(client.nthreads())
        if lost := [k for k, worker in enumerate(workers) if worker not in present]:
            raise LostError(f"the worker of part {lost[0]} was lost")
        errors = [error for call in calls if call.done() and (error := _error(call)) is not None]
        if errors:
            raise first_of(errors)
        if all(one.done() for one in asking):
            if (now := asking[0].result()) != stage:
                tell(stage := now)
            asking = [actor.stage() for actor in actors]  # which tells them that somebody waits
    if errors := [error for call in calls if (error := _error(call)) is not None]:
        raise first_of(errors)
    return [call.result()[1] for call in calls]


def _error(call: Any) -> BaseException | None:
    try:
        kind, found = call.result()
    except Exception as error:
        return LostError(f"a worker was lost: {error}")
    return found if kind == "failed" else None
