"""Work is done in this process, in some of this machine, or by the workers of a Dask cluster.

What a cluster needs is asked once: a scheduler that answers, workers with the programs of this
process, and the files that the work reads."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, TypeVar

from noisedesign.base import checks as _checks, workers
from noisedesign.base.checks import InputError
from noisedesign.base.extras import need
from noisedesign.base.machine import one_thread
from noisedesign.base.settings import CLUSTER_SECONDS
from noisedesign.base.version import version

Item = TypeVar("Item")
Result = TypeVar("Result")

LONELY_SECONDS = 60.0  # without any worker, until the work ends; a longer one waits for restarts
FIELD = "cluster"


@dataclass(frozen=True, kw_only=True)
class Where:
    """Work is done in this process, in ``jobs`` of this machine, or on a ``cluster``.

    Args:
        jobs: processes of this machine; 1 is this process.
        cluster: address of a Dask scheduler, as "tcp://host:port", in place of ``jobs``.
        timeout: seconds to wait for that scheduler and its first worker.

    Raises:
        InputError: naming ``jobs``, ``cluster`` or ``timeout``; ``cluster`` also where the package
            distributed is missing.
    """

    jobs: int = 1
    cluster: str | None = None
    timeout: float = CLUSTER_SECONDS

    def __post_init__(self) -> None:
        jobs = _checks.positive_int(self.jobs, field="jobs")
        _checks.real(self.timeout, field="timeout", low=0)
        if self.cluster is None:
            return
        _checks.text(self.cluster, field=FIELD)
        if jobs > 1:
            raise InputError("jobs", expected="1 beside a cluster", got=str(jobs))
        need("distributed", field=FIELD)

    @property
    def here(self) -> bool:
        """Whether it is this process."""
        return self.jobs == 1 and self.cluster is None

    def results(
        self,
        work: Callable[[Item], Result],
        items: Mapping[str, Item],
        *,
        files: Iterable[Path] = (),
        lost: Callable[[str], Result] | None = None,
    ) -> Iterator[tuple[str, Result]]:
        """Keys and results as they are finished; ``files`` and ``lost`` are of a cluster."""
        if self.cluster is not None and items:
            how: Any = {"address": self.cluster, "timeout": self.timeout}
            return in_workers(work, items, files=files, lost=lost, **how)
        if self.jobs > 1 and items:
            # Two at least: one job is this process, which an item must not be able to end.
            return workers.in_processes(work, items, jobs=min(self.jobs, max(2, len(items))))
        return ((key, work(item)) for key, item in items.items())


def in_workers(
    work: Callable[[Item], Result],
    items: Mapping[str, Item],
    *,
    address: str,
    timeout: float = CLUSTER_SECONDS,
    files: Iterable[Path] = (),
    lost: Callable[[str], Result] | None = None,
) -> Iterator[tuple[str, Result]]:
    """Keys and results as the workers of a Dask scheduler finish them, each on one BLAS thread.

    ``work`` and all that it holds is sent once, and from worker to worker; every item is sent to
    the worker that takes it. What the work raises comes out, and an InputError names the worker.
    The scheduler gives up items that lose workers, whichever of them ended these: each is run again
    alone, after the others.

    Args:
        work: a function that workers can import, or a ``partial`` of one.
        items: what it is called with, by keys that are texts.
        address: of the scheduler.
        timeout: seconds to wait for the scheduler and its first worker.
        files: files that the work reads, which every worker has to have at the same places.
        lost: gives the result of an item that alone ends every worker, by its key; default: an
            OSError that names it.

    Raises:
        InputError: naming ``cluster``: no scheduler or no worker there; other versions of this
            package or of Python, or other files, on a worker.
        OSError: the cluster is lost, or an item ended every worker; what came out before is kept.
    """
    wanted = _Wanted(programs(), tuple((path, _digest(path)) for path in sorted(set(files))))
    with connected(address, timeout=timeout) as client:
        patience = max(timeout, LONELY_SECONDS)
        blamed: list[str] = []
        yield from _round(client, work, items, wanted, patience, blamed)
        guilty = blamed if len(items) == 1 else []
        for key in blamed if len(items) > 1 else ():
            yield from _round(client, work, {key: items[key]}, wanted, patience, guilty)
    for key in guilty:
        yield key, (lost or give_up)(key)


@contextmanager
def connected(address: str, *, timeout: float = CLUSTER_SECONDS) -> Iterator[Any]:
    """Give a client of a Dask scheduler; it, and a worker or more, have the programs of this
    process.

    Args:
        address: of the scheduler.
        timeout: seconds to wait for it and its first worker.

    Raises:
        InputError: naming ``cluster``, where they are not there, or are other programs.
    """
    with closing(_client(address, timeout)) as client:
        _check_programs(client, programs())
        yield client


def give_up(what: str) -> NoReturn:
    """Raise the error about an item that ended every worker that took it."""
    raise OSError(
        f"{what} ended every worker that took it, perhaps for want of memory; all others are "
        "finished and kept. Give workers more memory, and run the command again"
    )


def programs() -> tuple[str, str]:
    """Versions of this package and of Python, as far as results depend on it."""
    return version(), ".".join(map(str, sys.version_info[:2]))


# --- what runs on workers -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wanted:
    """Every worker has to have these programs, and these files or none (digest None)."""

    programs: tuple[str, str]
    files: tuple[tuple[Path, str | None], ...]


def _done(item: Any, *, work: Callable[[Any], Any], wanted: _Wanted) -> Any:
    """The result of an item on a worker, which names itself in errors about its input."""
    from distributed import get_worker

    address = get_worker().address
    try:
        _check_worker(wanted)
        with one_thread():
            return work(item)
    except InputError as error:
        raise error.told(got=f"{error.got}, at worker {address}") from error


@cache
def _check_worker(wanted: _Wanted) -> None:
    """Refuse a worker that came late with other programs, or has other files; asked once of it."""
    _check(wanted.programs, programs(), "")
    for path, digest in wanted.files:
        found = _digest(path)
        if found != digest:
            expected = f"{path} to be as it is where the command runs"
            got = "no such file" if found is None else "another content"
            remedy = "Put the files that are read at the same places on all machines."
            raise InputError(FIELD, expected=expected, got=got, remedy=remedy)


def _digest(path: Path) -> str | None:
    """The sha256 of a file, None without one."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


# --- what runs here -------------------------------------------------------------------------------


def _check(wanted: tuple[str, str], found: object, where: str) -> None:
    if found == wanted:
        return
    told = "noisedesign {} on Python {}"
    got = told.format(*found) if isinstance(found, tuple) else str(found)
    remedy = "Install the same on every machine: scheduler and workers run what is sent to them."
    raise InputError(FIELD, expected=told.format(*wanted), got=f"{got}{where}", remedy=remedy)


def _check_programs(client: Any, wanted: tuple[str, str]) -> None:
    """Refuse a cluster in which anyone has other programs, or none of ours."""
    try:
        _check(wanted, client.run_on_scheduler(programs), " at the scheduler")
    except ImportError as error:
        _check(wanted, error, " at the scheduler")
    for address, found in client.run(programs, on_error="return").items():
        _check(wanted, found, f" at worker {address}")


def _round(
    client: Any,
    work: Callable[[Item], Result],
    items: Mapping[str, Item],
    wanted: _Wanted,
    patience: float,
    blamed: list[str],
) -> Iterator[tuple[str, Result]]:
    """Results of items that are finished; keys of those that lost workers go to ``blamed``."""
    import cloudpickle
    import dask
    from distributed import KilledWorker

    # Names of their own: a scheduler hands out the old answer to a name it knows.
    session = f"noisedesign-{secrets.token_hex(8)}"
    names = {f"{session}-{number}": key for number, key in enumerate(items)}
    finished: SimpleQueue[Any] = SimpleQueue()
    # The scheduler keeps what is to be unpickled: a worker that is lost with it is no loss.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
        sent = client.submit(cloudpickle.loads, cloudpickle.dumps(work), key=session)
        how: Any = {"work": sent, "wanted": wanted, "pure": False}
        futures = client.map(_done, list(items.values()), key=list(names), **how)
    for future in futures:
        future.add_done_callback(finished.put)
    while names:
        future = _patient(client, patience, finished.get)
        _patient(client, patience, future.exception)  # where a worker is lost with the result
        key = names.pop(future.key)
        try:
            result = future.result()
        except KilledWorker:
            blamed.append(key)
        except CancelledError as error:
            raise OSError("the cluster was lost; run the command again for the rest") from error
        else:
            yield key, result
        future.release()


def _patient(client: Any, patience: float, wait: Callable[..., Any]) -> Any:
    """Return what is waited for; OSError where nobody is left who could bring it about."""
    while True:
        try:
            return wait(timeout=patience)
        except (Empty, TimeoutError):
            if not client.nthreads():
                raise OSError(
                    f"the cluster has had no worker for {patience:g} s; start some, and run the "
                    "command again for the rest"
                ) from None


def _client(address: str, timeout: float) -> Any:
    import distributed

    remedy = "Start `dask scheduler` and `dask worker`, or wait longer with --timeout."
    within = f"that answers within {timeout:g} s"
    try:
        # A client would wait for ever for someone who takes the connection and says nothing. In a
        # thread of its own, since that of a notebook has an event loop already.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _greeted(address, timeout)).result()
        client = distributed.Client(address, timeout=timeout, set_as_default=False)
    # TimeoutError is an OSError, and TLS without certificates a TypeError.
    except (OSError, TypeError, ValueError) as error:
        expected = f"a scheduler {within}"
        raise InputError(FIELD, expected=expected, got=address, remedy=remedy) from error
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        client.close()
        expected, got = f"a scheduler with workers {within}", f"no worker at {address}"
        raise InputError(FIELD, expected=expected, got=got, remedy=remedy) from error
    return client


async def _greeted(address: str, timeout: float) -> None:
    from distributed import Security, comm

    comm.get_address_host_port(comm.normalize_address(address), strict=True)
    keys = Security().get_connection_args("client")
    connecting = comm.connect(address, timeout=timeout, **keys)
    (await asyncio.wait_for(connecting, timeout)).abort()
