"""Processes that are the ranks of one node, kept for many checks."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from typing import Any

PRELOADED = ["torch.distributed.fsdp", "noisedesign.adapters.pytorch", "tests.support.trainers"]
PATIENCE = 60  # seconds until a check is given up, of which all together take a few


class Pool:
    """``world`` processes in one process group; a call that fails on one of them fails here."""

    def __init__(self, world: int, folder: Path, *, backend: str = "gloo") -> None:
        self.world = world
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self.broken = False
        self._ends = []
        self.processes = []
        for rank in range(world):
            here, there = context.Pipe()
            args = (there, backend, rank, world, str(folder / f"store-{world}-{os.getpid()}"))
            process = context.Process(target=_serve, args=args, daemon=True)
            process.start()
            self._ends.append(here)
            self.processes.append(process)

    def __call__(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """What a function of the module level gave on every rank."""
        assert not self.broken, "a check before this one failed"
        self.broken = True
        for end in self._ends:
            end.send((function, args))
        found: dict[int, Any] = {}
        while len(found) < self.world:
            waiting = [end for rank, end in enumerate(self._ends) if rank not in found]
            ready = connection.wait(waiting, PATIENCE)
            assert ready, f"only ranks {sorted(found)} answered"
            for end in ready:
                rank = self._ends.index(end)
                failed, found[rank] = end.recv()
                assert not failed, f"rank {rank}:\n{found[rank]}"
        self.broken = False
        return [found[rank] for rank in range(self.world)]

    def killed_by(self, function: Callable[..., Any], *args: Any) -> list[int | None]:
        """The exit codes of processes that a function ends."""
        for end in self._ends:
            end.send((function, args))
        for process in self.processes:
            process.join(PATIENCE)
        return [process.exitcode for process in self.processes]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def _serve(end: Any, backend: str, rank: int, world: int, store: str) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        backend, store=distributed.FileStore(store, world), rank=rank, world_size=world
    )
    while True:
        function, args = end.recv()
        try:
            end.send((False, function(*args)))
        except BaseException:
            end.send((True, traceback.format_exc()))
