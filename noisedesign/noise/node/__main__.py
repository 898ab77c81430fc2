"""``python -m noisedesign.noise.node PLAN --data FILE.npz --folder FOLDER --peers PEERS.json``, and
``... identity FOLDER``, which prints the certificate that other nodes know this one by."""

from __future__ import annotations

import argparse
import ipaddress
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from noisedesign.base import atomic
from noisedesign.base.checks import InputError
from noisedesign.noise.agreement import Identity
from noisedesign.noise.node.exchange import (
    PATIENCE,
    PAUSE,
    Address,
    Board,
    MismatchError,
    Peers,
    Server,
)
from noisedesign.noise.node.links import IDENTITIES, IDENTITY, Links, certificate
from noisedesign.noise.node.training import Examples, Run
from noisedesign.noise.plan import SHARED, Plan

ADDRESS = "address"
GONE = "gone"  # in place of the address of a node that does not come back
FREEING = 5.0  # seconds in which a port that this node had before gets free again
EXIT_INPUT, EXIT_INTERRUPTED = 2, 130


def main(arguments: list[str] | None = None) -> int:
    """Train one node; its last line says what it reached."""
    if arguments is None:
        arguments = sys.argv[1:]
    if arguments[:1] == [IDENTITY]:
        return _identity(arguments[1:])
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
    parser.add_argument(
        "--identity", type=Path, help=f"its secret, of `identity` [{IDENTITY} in the folder]"
    )
    parser.add_argument(
        "--identities",
        type=Path,
        help=f"folder of the certificates of the others [{IDENTITIES} in the folder]",
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="without TLS even beyond this machine, where the network itself is private",
    )
    given = parser.parse_args(arguments)
    return _told(lambda: _run(given))


def _told(do: Callable[[], int]) -> int:
    """An exit code; an error is one line."""
    try:
        return do()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _identity(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="noisedesign-node identity")
    parser.add_argument("folder", help="of the node, where its identity is, or is made")
    given = parser.parse_args(arguments)

    def show() -> int:
        folder = atomic.made_folder(given.folder)
        folder.chmod(0o700)
        file = folder / IDENTITY
        made = Identity.load(file) if file.exists() else Identity.new()
        if not file.exists():
            made.save(file)
        print(certificate(made).decode(), end="")
        return 0

    return _told(show)


def _run(given: argparse.Namespace) -> int:
    plan, folder = Plan.load(given.plan), atomic.made_folder(given.folder)
    folder.chmod(0o700)
    tls, at = not given.plain, {"identity": given.identity, "identities": given.identities}
    links = Links.load(folder, plan.others, tls=tls, **at)
    safe = given.plain or links is not None
    if not safe and plan.claim.trust != "local":
        got = "none, where noise protects from those who see a part of the messages"
        raise InputError(IDENTITIES, expected="those of all neighbours", got=got, remedy=_SECURE)
    run = Run(
        plan=plan,
        examples=Examples.load(given.data),
        folder=folder,
        step_size=given.step_size,
        seconds=given.seconds,
        report=lambda step, loss: print(f"step {step} loss {loss:.6f}", flush=True),
        links=links,
    )
    if plan.unbounded:
        raise InputError("plan.horizon", expected="a run that ends", got="one without an end")
    board = Board(digest=plan.digest, node=plan.node, horizon=plan.horizon, rounds=plan.rounds)
    remembered = folder / ADDRESS
    with _listening(board, given.listen, remembered, links=links, safe=safe) as server:
        with atomic.overwriting():
            atomic.write_text(remembered, f"{server.address[0]}:{server.address[1]}")
        try:
            peers = _peers(Path(given.peers), plan, seconds=given.seconds, safe=safe)
            run.train(peers, board)
        except MismatchError:
            time.sleep(PATIENCE)  # the others hear it too, when they ask
            raise
    claim = plan.claim
    held = f"({claim.epsilon:g}, {claim.delta:g})-DP, {claim.adjacency}"
    if SHARED in plan.sources:
        held += ", against those who hold none of its seeds"
    print(f"node {plan.name}: {plan.horizon} steps, {held}")
    return 0


_SECURE = (
    "Make identities, `noisedesign-node identity FOLDER`: with them messages go over TLS. "
    "Where the network itself is private: --plain."
)


def _listening(
    board: Board,
    listen: str,
    remembered: Path,
    *,
    links: Links | None,
    safe: bool,
    freeing: float = FREEING,
) -> Server:
    """Listen where it did before, as others know it; elsewhere where that port is taken for good
    and any free one will do."""
    asked = _address(listen, field="listen")
    _check_here(asked, field="listen", safe=safe)
    if not remembered.exists():
        return Server(board, asked, links=links)
    before = _address(remembered.read_text("utf-8"), field=ADDRESS)
    _check_here(before, field=ADDRESS, safe=safe)
    deadline = time.monotonic() + freeing
    while True:
        try:
            return Server(board, before, links=links)
        except InputError:  # somebody may have it for a moment, for a connection
            if time.monotonic() > deadline:
                if asked[1]:
                    raise
                return Server(board, asked, links=links)
            time.sleep(PAUSE)


def _check_here(address: Address, *, field: str, safe: bool) -> None:
    """Refuse to talk in the clear beyond this machine, unless told to."""
    if safe or _is_here(address[0]):
        return
    expected = "an address of this machine, or identities for TLS"
    got = f"{address[0]}:{address[1]} without {IDENTITY} and {IDENTITIES} in the folder"
    raise InputError(field, expected=expected, got=got, remedy=_SECURE)


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _peers(file: Path, plan: Plan, *, seconds: float, safe: bool) -> Peers:
    """Addresses as the file has them now; waits until it is there."""
    others = plan.others

    def address(said: str, v: int) -> Address | None:
        if said == GONE:
            return None
        found = _address(said, field=f"peers.{v}")
        _check_here(found, field=f"peers.{v}", safe=safe)
        return found

    def found() -> dict[int, Address | None]:
        deadline = time.monotonic() + seconds
        while True:
            try:
                known = json.loads(file.read_text("utf-8"))
                return {v: address(known[str(v)], v) for v in others}
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
