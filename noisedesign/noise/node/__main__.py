"""``python -m noisedesign.noise.node PLAN --data FILE.npz --folder FOLDER --peers PEERS.json``"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from noisedesign.base import atomic
from noisedesign.base.checks import InputError
from noisedesign.noise.node.exchange import (
    PATIENCE,
    PAUSE,
    Address,
    Board,
    MismatchError,
    Peers,
    Server,
)
from noisedesign.noise.node.training import Examples, Run
from noisedesign.noise.plan import SHARED, Plan

ADDRESS = "address"
EXIT_INPUT, EXIT_INTERRUPTED = 2, 130


def main(arguments: list[str] | None = None) -> int:
    """Train one node; its last line says what it reached."""
    parser = argparse.ArgumentParser(
        prog="noisedesign-node", description="One node of private D-SGD."
    )
    parser.add_argument("plan", help="the node's file, of `noisedesign deploy`")
    parser.add_argument("--data", required=True, help="its own examples, .npz: features, labels")
    parser.add_argument("--folder", required=True, help="what it remembers; for nobody else")
    parser.add_argument("--peers", required=True, help='JSON: {"node": "host:port", ...}')
    parser.add_argument(
        "--listen", default="127.0.0.1:0", help="host:port [a free one of this machine]"
    )
    parser.add_argument("--step-size", type=float, default=1.0)
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="how long to wait for a neighbour"
    )
    given = parser.parse_args(arguments)
    try:
        return _run(given)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(given: argparse.Namespace) -> int:
    plan, folder = Plan.load(given.plan), atomic.made_folder(given.folder)
    folder.chmod(0o700)
    run = Run(
        plan=plan,
        examples=Examples.load(given.data),
        folder=folder,
        step_size=given.step_size,
        seconds=given.seconds,
        report=lambda step, loss: print(f"step {step} loss {loss:.6f}", flush=True),
    )
    if plan.unbounded:
        raise InputError("plan.horizon", expected="a run that ends", got="one without an end")
    board = Board(digest=plan.digest, node=plan.node, horizon=plan.horizon, rounds=plan.rounds)
    remembered = folder / ADDRESS
    listen = remembered.read_text("utf-8") if remembered.exists() else given.listen
    with Server(board, _address(listen, field="listen")) as server:
        with atomic.overwriting():
            atomic.write_text(remembered, f"{server.address[0]}:{server.address[1]}")
        try:
            run.train(_peers(Path(given.peers), plan, seconds=given.seconds), board)
        except MismatchError:
            time.sleep(PATIENCE)  # the others hear it too, when they ask
            raise
    claim = plan.claim
    held = f"({claim.epsilon:g}, {claim.delta:g})-DP, {claim.adjacency}"
    if SHARED in plan.sources:
        held += ", against those who hold none of its seeds"
    print(f"node {plan.name}: {plan.horizon} steps, {held}")
    return 0


def _peers(file: Path, plan: Plan, *, seconds: float) -> Peers:
    """Addresses as the file has them now; waits until it is there."""
    others = plan.others

    def found() -> dict[int, Address]:
        deadline = time.monotonic() + seconds
        while True:
            try:
                known = json.loads(file.read_text("utf-8"))
                return {v: _address(known[str(v)], field=f"peers.{v}") for v in others}
            except (OSError, ValueError, KeyError, TypeError) as error:
                if isinstance(error, InputError):
                    raise
                if time.monotonic() > deadline:
                    expected = f'{file} with "host:port" of nodes {", ".join(map(str, others))}'
                    raise InputError("peers", expected=expected, got=f"{error!r}") from None
            time.sleep(PAUSE)

    return found


def _address(text: str, *, field: str) -> Address:
    host, _, port = str(text).rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(field, expected="host:port", got=str(text))
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main())
