"""Rows on a Dask cluster: the same rows, and this process alone keeps the table."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from noisedesign.base.checks import InputError
from noisedesign.files.sweep_file import SweepRow
from noisedesign.tasks.report import Record
from noisedesign.tasks.solve import FAILED
from noisedesign.tasks.sweep.rows import row_on_one_thread, unanswered

FIELD = "cluster"


def on_cluster(rows: Sequence[SweepRow], *, address: str, timeout: float) -> Iterator[Record]:
    """The rows as they are finished by the workers of the scheduler at ``address``.

    The cluster begins the rows of a worker that is lost again elsewhere. It gives up on rows that
    lose one worker after the other, without telling which of those on a worker ended it: each of
    them is run again alone, after the others, and is "failed" if it ends its workers then, too.
    Files that problems name must be where they are here.

    Args:
        timeout: seconds to wait for the scheduler, and for its first worker.

    Raises:
        InputError: naming ``cluster``: distributed is not installed; no scheduler, no worker;
            workers that cannot run this package.
        OSError: the cluster was lost.
    """
    distributed = _distributed()
    with closing(_client(distributed, address, timeout)) as client:
        yield from _records(distributed, client, rows)


def _records(distributed: Any, client: Any, rows: Sequence[SweepRow]) -> Iterator[Record]:
    blamed = []
    for row, future in _finished(distributed, client, rows):
        if not _ended_its_workers(distributed, future):
            yield _record(future)
        elif len(rows) == 1:
            yield unanswered(row, status=FAILED, reason="it ended every worker that computed it")
        else:
            blamed.append(row)
    for row in blamed:
        yield from _records(distributed, client, [row])


def _finished(
    distributed: Any, client: Any, rows: Sequence[SweepRow]
) -> Iterator[tuple[SweepRow, Any]]:
    # Names of their own: a scheduler hands out the old answer to a name it knows.
    session = secrets.token_hex(8)
    futures = client.map(
        row_on_one_thread, rows, key=[f"noisedesign-{session}-{row.key}" for row in rows]
    )
    row_of = dict(zip((future.key for future in futures), rows, strict=True))
    try:
        for future in distributed.as_completed(futures, loop=client.loop):
            yield row_of[future.key], future
            future.release()
    finally:
        client.cancel(futures)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise InputError(
            FIELD,
            expected="the package distributed",
            got="none",
            remedy="pip install 'noisedesign[dask]'",
        ) from error
    return distributed


def _client(distributed: Any, address: str, timeout: float) -> Any:
    remedy = "Start `dask scheduler` and `dask worker`, or wait longer with --timeout."
    within = f"that answers within {timeout:g} s"
    try:
        # A client would wait for ever for someone who takes the connection and says nothing. In a
        # thread of its own, since that of a notebook has an event loop already.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _greeted(distributed, address, timeout)).result()
        client = distributed.Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as error:  # TimeoutError is an OSError
        raise InputError(
            FIELD, expected=f"a scheduler {within}", got=address, remedy=remedy
        ) from error
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        client.close()
        raise InputError(
            FIELD,
            expected=f"a scheduler with workers {within}",
            got=f"no worker at {address}",
            remedy=remedy,
        ) from error
    return client


async def _greeted(distributed: Any, address: str, timeout: float) -> None:
    distributed.comm.get_address_host_port(address, strict=True)
    connecting = distributed.comm.connect(address, timeout=timeout)
    (await asyncio.wait_for(connecting, timeout)).abort()


def _ended_its_workers(distributed: Any, future: Any) -> bool:
    return not future.cancelled() and isinstance(future.exception(), distributed.KilledWorker)


def _record(future: Any) -> Record:
    error = None if future.cancelled() else future.exception()
    if future.status != "finished":
        raise (
            OSError("the cluster was lost; run the sweep again for the rest of it")
            if error is None
            else InputError(
                FIELD,
                expected="workers with this version of noisedesign",
                got=f"{type(error).__name__}: {error}",
            )
        )
    return dict(future.result())
