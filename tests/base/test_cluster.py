"""Work on a Dask cluster: what is sent, what comes out, who is refused and who is blamed.

Workers that are killed are in test_killed_workers.py."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from noisedesign.base import cluster
from noisedesign.base.checks import InputError
from noisedesign.base.cluster import Where, in_workers
from noisedesign.noise.node.exchange import MismatchError
from tests.support.clusters import in_main_thread, threads as threads


def squared(value: int) -> int:
    return value**2


def refuse(value: int) -> int:
    raise InputError("value", expected="another", got=str(value), remedy="Take one.")


def limits(_: int) -> list[bool]:
    return list(vars(cluster)["limited"])


class Large:
    """Work that counts how often it is packed to be sent."""

    packed = 0

    def __reduce__(self) -> tuple[type[Large], tuple[()]]:
        Large.packed += 1
        return Large, ()

    def __call__(self, value: int) -> int:
        return value + 1


def test_every_result_once_by_its_key(threads: str) -> None:
    items = {f"item {k}": k for k in range(7)}
    found = list(in_workers(squared, items, address=threads))
    assert sorted(found) == sorted((key, k**2) for key, k in items.items())
    again = dict(in_workers(partial(pow, 2), items, address=threads))
    assert again == {key: 2**k for key, k in items.items()}


def test_a_worker_works_on_one_blas_thread(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limited: list[bool] = []

    @contextmanager
    def one_thread() -> Iterator[None]:
        limited.append(True)
        yield
        limited.pop()

    monkeypatch.setattr(cluster, "one_thread", one_thread)
    monkeypatch.setattr(cluster, "limited", limited, raising=False)
    assert dict(in_workers(limits, {"a": 0}, address=threads)) == {"a": [True]}
    assert limited == []


def test_work_is_sent_once_and_from_worker_to_worker(threads: str) -> None:
    Large.packed = 0
    items = {str(k): k for k in range(20)}
    assert len(dict(in_workers(Large(), items, address=threads))) == 20
    assert 1 <= Large.packed <= 2  # to the scheduler, and from one worker to the other


def test_large_work_is_sent_without_a_warning(
    threads: str, recwarn: pytest.WarningsRecorder
) -> None:
    data = b"0" * 11_000_000  # Dask warns of more than ten million bytes
    assert dict(in_workers(partial(_length, data), {"a": 0}, address=threads)) == {"a": len(data)}
    assert not [one for one in recwarn if "large graph" in str(one.message)]


def _length(data: bytes, _: int) -> int:
    return len(data)


def test_what_the_work_raises_comes_out_and_bad_input_names_the_worker(threads: str) -> None:
    with pytest.raises(TypeError):
        list(in_workers(squared, {"a": "a"}, address=threads))  # type: ignore[dict-item]
    with pytest.raises(InputError) as error:
        list(in_workers(refuse, {"a": 1}, address=threads))
    assert (error.value.field, error.value.remedy) == ("value", "Take one.")
    assert error.value.got.startswith("1, at worker tcp://127.0.0.1:")


def test_an_error_about_input_survives_the_way() -> None:
    """Between processes; one that cannot be unpickled ends the process that takes it."""
    for kind in (InputError, MismatchError):
        error = kind("a.b", expected="this", got="that", remedy="Do so.")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (kind, str(error))
        assert (again.field, again.expected) == ("a.b", "this")
        assert (again.got, again.remedy) == ("that", "Do so.")


def test_who_stops_early_leaves_nothing_to_do(threads: str) -> None:
    import distributed

    found = in_workers(squared, {str(k): k for k in range(50)}, address=threads)
    next(found)
    found.close()  # type: ignore[attr-defined]
    with distributed.Client(threads, set_as_default=False) as client:
        assert client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0


# --- where ----------------------------------------------------------------------------------------


def test_where_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []

    def processes(work: Any, items: Any, *, jobs: int) -> Iterator[tuple[str, int]]:
        asked.append(("processes", jobs))
        return iter([])

    def workers(work: Any, items: Any, **how: Any) -> Iterator[tuple[str, int]]:
        asked.append(("workers", how["address"]))
        return iter([])

    monkeypatch.setattr(cluster.workers, "in_processes", processes)
    monkeypatch.setattr(cluster, "in_workers", workers)
    two = {"a": 1, "b": 2}
    assert dict(Where().results(squared, two)) == {"a": 1, "b": 4}
    assert Where().here
    for where in (Where(jobs=9), Where(cluster="tcp://a:1")):
        assert not where.here
        assert list(where.results(squared, {})) == []  # nobody is asked for nothing
        where.results(squared, two)
    Where(jobs=9).results(squared, {"a": 1})
    assert asked == [("processes", 2), ("workers", "tcp://a:1"), ("processes", 2)]


@pytest.mark.parametrize(
    ("how", "field", "said"),
    [
        ({"jobs": 0}, "jobs", "an integer >= 1"),
        ({"jobs": 2, "cluster": "tcp://a:1"}, "jobs", "1 beside a cluster"),
        ({"timeout": 0}, "timeout", "a number in"),
        ({"cluster": 8786}, "cluster", "a text"),
    ],
)
def test_wrong_places(how: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        Where(**how)
    assert error.value.field == field


# --- who is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("member", ["Scheduler", "Worker"])
@pytest.mark.parametrize("found", [("0.2.0", "3.11"), ("0.3.0", "2.7"), ImportError("none")])
def test_other_programs_are_refused(
    threads: str, member: str, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask gives whom it asks to a function that has an argument of that name."""
    ours = cluster.programs()

    def programs(dask_worker: object = None) -> Any:
        if type(dask_worker).__name__ != member:
            return ours
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(cluster, "programs", programs)
    with pytest.raises(InputError) as error:
        list(in_workers(squared, {"a": 1}, address=threads))
    assert error.value.field == "cluster"
    assert error.value.expected == "noisedesign {} on Python {}".format(*ours)
    told = "none" if isinstance(found, Exception) else "noisedesign {} on Python {}".format(*found)
    place = "the scheduler" if member == "Scheduler" else "worker tcp://127.0.0.1:"
    assert error.value.got.startswith(f"{told} at {place}")


def test_a_worker_that_came_late_is_asked_too(
    threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster._check_worker.cache_clear()
    monkeypatch.setattr(cluster, "_check_programs", lambda *_: None)
    monkeypatch.setattr(cluster, "programs", in_main_thread(cluster.programs, ("0.1", "3.11")))
    with pytest.raises(InputError, match=r"got noisedesign 0\.1 on Python 3\.11, at worker tcp"):
        list(in_workers(squared, {"a": 1}, address=threads))


@pytest.mark.parametrize(("found", "said"), [(None, "no such file"), ("0", "another content")])
def test_files_have_to_be_there_too(
    threads: str, tmp_path: Path, found: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("a,b\n")
    items = {"a": 1}
    assert dict(in_workers(squared, items, address=threads, files=[path])) == {"a": 1}
    monkeypatch.setattr(cluster, "_digest", in_main_thread(cluster._digest, found))
    path.write_text("a,c\n")  # as it was, it is known to be there
    with pytest.raises(InputError, match=f"edges.csv to be as it is.*got {said}, at worker"):
        list(in_workers(squared, items, address=threads, files=[path]))


# --- who is blamed --------------------------------------------------------------------------------


class Future:
    """A future that is finished, or whose workers were lost."""

    def __init__(self, key: str, value: Any, error: Exception | None) -> None:
        self.key, self._value, self._error = key, value, error

    def exception(self, timeout: float) -> Exception | None:
        return self._error

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def add_done_callback(self, put: Callable[[Future], None]) -> None:
        put(self)

    def release(self) -> None:
        pass


class Client:
    """A scheduler that gives up all items of the workers that are lost: here 1 ends them, 2 waits
    beside it."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def nthreads(self) -> dict[str, int]:
        return {"a worker": 1}

    def submit(self, *_: Any, key: str) -> None:
        return None

    def map(self, _: Any, items: list[int], key: list[str], **__: Any) -> list[Future]:
        from distributed import KilledWorker

        self.asked.append(items)
        lost = {1, 2} if len(items) > 1 else {1}
        errors = [KilledWorker("a task", None, 3) if item in lost else None for item in items]
        return [Future(*one) for one in zip(key, items, errors, strict=True)]

    def close(self) -> None:
        pass


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> Client:
    pytest.importorskip("distributed")
    client = Client()
    monkeypatch.setattr(cluster, "_client", lambda *_: client)
    monkeypatch.setattr(cluster, "_check_programs", lambda *_: None)
    return client


ITEMS = {name: k for k, name in enumerate("abcd")}


def test_an_item_is_blamed_for_what_it_does_alone(lossy: Client) -> None:
    found = in_workers(squared, ITEMS, address="a:1", lost=lambda key: f"lost {key}")  # type: ignore[arg-type, return-value]
    assert list(found) == [("a", 0), ("d", 3), ("c", 2), ("b", "lost b")]
    assert lossy.asked == [[0, 1, 2, 3], [1], [2]]


def test_the_others_are_finished_before_an_item_is_an_error(lossy: Client) -> None:
    found = in_workers(squared, ITEMS, address="a:1")
    assert [next(found) for _ in range(3)] == [("a", 0), ("d", 3), ("c", 2)]
    with pytest.raises(OSError, match="b ended every worker that took it.*Give workers more"):
        next(found)


def test_a_result_that_is_lost_with_its_worker_is_waited_for(
    lossy: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as there is a worker who could compute it again."""

    class Lost(Future):
        asked = 0

        def exception(self, timeout: float) -> None:
            self.asked += 1
            if self.asked == 1:
                raise TimeoutError

        def result(self) -> Any:
            return self.asked

    def mapped(_: Any, items: list[int], key: list[str], **__: Any) -> list[Future]:
        return [Lost(one, None, None) for one in key]

    monkeypatch.setattr(lossy, "map", mapped)
    assert dict(in_workers(squared, ITEMS, address="a:1")) == dict.fromkeys(ITEMS, 2)
    monkeypatch.setattr(lossy, "nthreads", dict)
    with pytest.raises(OSError, match="no worker for 60 s"):
        next(in_workers(squared, ITEMS, address="a:1"))


def test_nobody_waits_for_workers_that_are_no_more() -> None:
    class Lonely:
        def __init__(self, workers: dict[str, int]) -> None:
            self.workers = workers

        def nthreads(self) -> dict[str, int]:
            return self.workers

    with pytest.raises(OSError, match=r"no worker for 0\.01 s; start some"):
        cluster._patient(Lonely({}), 0.01, SimpleQueue().get)
    late: SimpleQueue[str] = SimpleQueue()
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(cluster._patient, Lonely({"a worker": 1}), 0.01, late.get)
        time.sleep(0.1)  # ten times as long as it waits before it asks for workers
        late.put("at last")
        assert found.result() == "at last"
