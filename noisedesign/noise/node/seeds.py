"""The seeds a node shares with others: agreed once, over the board, and remembered.

Letters for a node are shown one after the other, and it asks for them in that order.
"""

from __future__ import annotations

import queue
import shutil
import threading
import time
from pathlib import Path

from noisedesign.base.checks import InputError
from noisedesign.noise.agreement import MOST_BYTES, Agreement, Letters
from noisedesign.noise.keys import Secret
from noisedesign.noise.node.exchange import Board, Peers, ask
from noisedesign.noise.plan import SHARED, Plan

FOLDER = "seeds"


def agreed(
    plan: Plan, folder: Path, peers: Peers, board: Board, *, seconds: float
) -> dict[str, Secret]:
    """Return the secrets of the shared streams, by name: those in ``folder``, or new ones that all
    holders have confirmed. A node that is killed before its seeds are in the folder cannot agree
    again with others that went on: all start afresh."""
    names = [stream.name for stream in plan.streams if stream.source == SHARED]
    if not names:
        return {}
    kept = folder / FOLDER
    if not kept.exists():
        _save(_agreement(plan, peers, board, seconds=seconds).secrets(), kept)
    return {name: Secret.load(kept / name) for name in names}


def _agreement(plan: Plan, peers: Peers, board: Board, *, seconds: float) -> Agreement:
    found, shown = Agreement(plan), dict.fromkeys(Agreement(plan).peers, 0)
    heard: queue.Queue[bytes | InputError] = queue.Queue()
    over = threading.Event()

    def show(letters: Letters) -> None:
        for receiver, letter in letters:
            board.show(_kind(receiver), shown[receiver], letter)
            shown[receiver] += 1

    def listen(peer: int) -> None:
        at = 0
        while not over.is_set():
            try:
                heard.put(_letter(plan, peers, peer, at, seconds=seconds))
            except InputError as error:
                heard.put(error)
                return
            at += 1

    show(found.start())
    for peer in found.peers:
        threading.Thread(target=listen, args=(peer,), daemon=True).start()
    deadline = time.monotonic() + seconds
    try:
        while not found.finished:
            try:
                letter = heard.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                silent = ", ".join(map(str, found.waiting))
                expected = f"the confirmation of node {silent} within {seconds:g} s"
                raise InputError("seeds", expected=expected, got="none") from None
            if isinstance(letter, InputError):
                raise letter
            show(found.take(letter))
    finally:
        over.set()
    return found


def _letter(plan: Plan, peers: Peers, peer: int, at: int, *, seconds: float) -> bytes:
    kind = _kind(plan.node)
    return ask(
        peers()[peer],
        digest=plan.digest,
        node=plan.node,
        kind=kind,
        step=at,
        seconds=seconds,
        most=MOST_BYTES,
    )


def _kind(receiver: int) -> str:
    return f"letter to {receiver}"


def _save(secrets: dict[str, Secret], folder: Path) -> None:
    """All of them, or none."""
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    for name, secret in secrets.items():
        secret.save(partial / name)
    partial.rename(folder)
