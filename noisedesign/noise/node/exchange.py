"""Messages between neighbours: each node shows what it has to say, and asks the others. Who asks
waits until the answer is there, and asks again where a connection breaks. Plain unless there are
``links``: models have noise, which is for those who see them; TLS keeps others from changing them,
from asking in the name of a node, and from seeing more than the observers of a design do."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

from noisedesign.base.checks import InputError
from noisedesign.noise.node.links import HANDSHAKE, Links, UnknownCertificateError, refusal

LONGEST_LINE = 1 << 16
LARGEST_BODY = 1 << 34
PAUSE = 0.05  # seconds between two attempts to reach a neighbour
SILENCE = 60.0  # seconds without a word after which whoever asked is left alone
PATIENCE = 2.0  # seconds a question waits at the other side before it is asked again
LETTER = "letter to "  # before the node that a letter of an agreement is for
MODEL = "model"  # the kind of message of which there is one a gossip round
KEPT = 2
"""Rounds whose models are kept where a step has one round: a neighbour is at most one behind, and
goes back to the first round of a step where it is started again."""

Address = tuple[str, int]
Peers = Callable[[], Mapping[int, Address | None]]
"""Function that gives the address of every neighbour now; None of one that is gone for good."""


class MismatchError(InputError):
    """The other side runs something else: asking again does not help."""


class GoneError(InputError):
    """The other side is gone for good, as the addresses say."""


class Board:
    """The messages of a node for neighbours to ask for: one body a kind and step; models have a
    step a gossip round, ``rounds`` in each of ``horizon`` steps."""

    def __init__(self, *, digest: str, node: int, horizon: int, rounds: int = 1) -> None:
        self.digest, self.node, self.horizon = digest, node, horizon * rounds
        self._kept = KEPT + rounds - 1
        self._bodies: dict[tuple[str, int], bytes] = {}
        self._told: set[tuple[str, int]] = set()
        self._changed = threading.Condition()

    def show(self, kind: str, step: int, body: bytes) -> None:
        """Show a body from now on, and forget models that no neighbour can need any more."""
        with self._changed:
            self._bodies[kind, step] = body
            if kind == MODEL:
                self._bodies.pop((kind, step - self._kept), None)
            self._changed.notify_all()

    def answer(
        self, question: Mapping[str, Any], known: int | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Return head and body; "refused" where nothing will ever come, "later" where not yet.
        ``known`` is who asks by its certificate, where it has one."""
        if question.get("digest") != self.digest:
            return self._refused(f"node {self.node} runs the design {self.digest[:12]}")
        kind, step = str(question.get("kind")), question.get("step")
        if known is not None:
            if question.get("from") != known:
                return self._refused(f"node {self.node} sees the certificate of node {known}")
            if kind.startswith(LETTER) and kind != f"{LETTER}{known}":
                return self._refused(f"node {self.node} has no such letter for node {known}")
        if type(step) is not int or step < 0 or type(question.get("from", -1)) is not int:
            return self._refused("a question of another program")
        if kind == MODEL and step >= self.horizon:
            return self._refused(f"node {self.node} runs steps 0 to {self.horizon - 1}")
        with self._changed:
            self._changed.wait_for(lambda: self._settled(kind, step), timeout=PATIENCE)
            body = self._bodies.get((kind, step))
            if body is not None:
                return {"node": self.node, "bytes": len(body)}, body
            if self._settled(kind, step):
                now = max(s for k, s in self._bodies if k == kind)
                return self._refused(f"node {self.node} is at step {now} already")
            return {"later": True}, b""

    def told(self, question: Mapping[str, Any]) -> None:
        """Note that a question has been answered."""
        with self._changed:
            self._told.add((str(question.get("kind")), question.get("from", -1)))
            self._changed.notify_all()

    def wait_until_told(self, kind: str, nodes: Iterable[int], *, seconds: float) -> bool:
        """Whether all of these have been answered what they asked of that kind, in time."""
        wanted = {(kind, node) for node in nodes}
        with self._changed:
            return self._changed.wait_for(lambda: wanted <= self._told, timeout=seconds)

    def _settled(self, kind: str, step: int) -> bool:
        return any(k == kind and s >= step for k, s in self._bodies)

    @staticmethod
    def _refused(reason: str) -> tuple[dict[str, Any], bytes]:
        return {"refused": reason}, b""


class Server:
    """Answers for a board until it is left, used by ``with``; ``address`` is where."""

    def __init__(
        self, board: Board, address: Address = ("127.0.0.1", 0), *, links: Links | None = None
    ) -> None:
        secured = links if links is not None and links.tls else None
        kept = self._kept = set[socket.socket]()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.settimeout(SILENCE)
                first = self.request.recv(1, socket.MSG_PEEK)
                talks_tls = first == bytes([HANDSHAKE])
                if talks_tls != (secured is not None):
                    what = "plain" if secured is None else "over TLS"
                    if not talks_tls:  # read, or it would be lost what is answered
                        with self.request.makefile("rb") as stream:
                            stream.readline(LONGEST_LINE)
                    told = {"refused": f"node {board.node} talks {what} alone"}
                    self.request.sendall(json.dumps(told).encode() + b"\n")
                elif secured is None:
                    self._answer(self.request, None)
                else:
                    made, known = secured.accepted(self.request)
                    with made:
                        self._answer(made, known)

            def _answer(self, connection: socket.socket, known: int | None) -> None:
                kept.add(connection)
                try:
                    with connection.makefile("rb") as stream:
                        while line := stream.readline(LONGEST_LINE):
                            self._answer_one(connection, line, known)
                finally:
                    kept.discard(connection)

            def _answer_one(
                self, connection: socket.socket, line: bytes, known: int | None
            ) -> None:
                try:
                    question = json.loads(line)
                    head, body = board.answer(question, known)
                except (ValueError, AttributeError):
                    head, body = {"refused": "a question of another program"}, b""
                connection.sendall(json.dumps(head).encode() + b"\n" + body)
                if "bytes" in head:
                    board.told(question)

        class Listener(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 64  # of many neighbours that ask at one moment, none is sent away

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Neighbours that break off ask again: a word about each would fill a pipe."""
                if not isinstance(sys.exception(), OSError):
                    super().handle_error(request, client_address)

        try:
            self._listener = Listener(address, Handler)
        except OSError as error:
            got = error.strerror or str(error)
            expected = f"a free port at {address[0]}:{address[1]}"
            raise InputError("address", expected=expected, got=got) from None
        host, port = self._listener.server_address[:2]
        self.address: Address = (str(host), int(port))

    def __enter__(self) -> Server:
        threading.Thread(target=self._listener.serve_forever, args=(PAUSE,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        for connection in tuple(self._kept):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Lines:
    """Connections to neighbours, kept from one question to the next, each thread's its own: a
    handshake of TLS takes ten times the work of a plain question and its answer."""

    def __init__(self, links: Links | None = None) -> None:
        self._links = links if links is not None and links.tls else None
        self._here = threading.local()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        for other in tuple(self._open):
            self._drop(other)

    @property
    def _open(self) -> dict[int, _Line]:
        found: dict[int, _Line] = self._here.__dict__.setdefault("open", {})
        return found

    def _drop(self, other: int) -> None:
        if (line := self._open.pop(other, None)) is not None:
            with contextlib.suppress(OSError):
                line.stack.close()

    def _to(self, address: Address, other: int) -> _Line:
        line = self._open.get(other)
        if line is not None and line.address == address:
            return line
        self._drop(other)
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(socket.create_connection(address, timeout=10 * PATIENCE))
            made: socket.socket = raw
            if self._links is not None:
                made = stack.enter_context(self._links.asked(raw, other))
            stream = stack.enter_context(made.makefile("rb"))
            self._open[other] = _Line(address, made, stream, stack.pop_all())
        return self._open[other]

    def asked(
        self, address: Address, question: bytes, *, most: int, other: int
    ) -> tuple[dict[str, Any], bytes]:
        """Return the head and body of an answer; whatever is odd ends the connection."""
        try:
            line = self._to(address, other)
            line.connection.sendall(question)
            head = json.loads(line.stream.readline(LONGEST_LINE))
            if not {"bytes", "later", "refused"} & head.keys():
                # A port of this machine that nobody listens at may be given to who asks for it,
                # who then hears itself.
                raise ValueError("head")
            size = head.get("bytes", 0)
            if type(size) is not int or size < 0:
                raise ValueError("bytes")
            if size > most:
                raise MismatchError("peer", expected=f"at most {most} bytes", got=f"{size}")
            body = line.stream.read(size)
            if len(body) != size:
                raise ValueError("an answer cut short")
        except BaseException:
            self._drop(other)
            raise
        return head, body


class _Line(NamedTuple):
    address: Address
    connection: socket.socket
    stream: BinaryIO
    stack: contextlib.ExitStack


def ask(
    address: Address | Callable[[], Address | None],
    *,
    digest: str,
    node: int,
    kind: str,
    step: int = 0,
    seconds: float,
    most: int = LARGEST_BODY,
    other: int = -1,
    lines: Lines | None = None,
) -> bytes:
    """Return what a node shows; a MismatchError says that asking again does not help. Its address
    may be a function, which is asked before every attempt: None says that it is gone for good."""
    if lines is None:
        with Lines() as lines:
            return ask(
                address, digest=digest, node=node, kind=kind, step=step, seconds=seconds,
                most=most, other=other, lines=lines,
            )  # fmt: skip
    question = {"digest": digest, "from": node, "kind": kind, "step": step}
    line, deadline = json.dumps(question).encode() + b"\n", time.monotonic() + seconds
    while True:
        at = address() if callable(address) else address
        if at is None:
            raise GoneError(
                "peer", expected=f"an answer of node {other}", got="word that it is gone"
            )
        where = f"{at[0]}:{at[1]}"
        try:
            head, body = lines.asked(at, line, most=most, other=other)
        except (MismatchError, UnknownCertificateError):
            raise
        except ssl.SSLError as error:
            if refused := refusal(error, other, where):
                raise refused from None
            head, body = {"later": True}, b""
        except (OSError, ValueError, AttributeError):
            head, body = {"later": True}, b""
        if "refused" in head:
            expected = f"{kind} of step {step} for the design {digest[:12]}"
            raise MismatchError("peer", expected=expected, got=str(head["refused"]))
        if "later" not in head:
            return body
        if time.monotonic() >= deadline:
            expected = f"an answer from {where} within {seconds:g} s"
            remedy = "Start that node, or start it again: it goes on where it was."
            raise InputError("peer", expected=expected, got="none", remedy=remedy)
        time.sleep(PAUSE)
