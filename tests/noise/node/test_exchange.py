"""Questions and answers over real sockets of this machine."""

import contextlib
import json
import socket
import threading
import time

import pytest

from noisedesign.base.checks import InputError
from noisedesign.noise import Identity
from noisedesign.noise.node import exchange
from noisedesign.noise.node.exchange import Board, GoneError, Lines, MismatchError, Server, ask
from noisedesign.noise.node.links import Links, certificate, public_of

DIGEST, OTHER = "a1" * 32, "b2" * 32


def board() -> Board:
    return Board(digest=DIGEST, node=7, horizon=5)


def asked(server: Server, step: int, *, digest: str = DIGEST, seconds: float = 5.0) -> bytes:
    return ask(server.address, digest=digest, node=3, kind="model", step=step, seconds=seconds)


def test_an_answer_is_what_was_shown() -> None:
    shown = board()
    with Server(shown) as server:
        shown.show("model", 0, b"\x00\n{}" * 100_000)
        assert asked(server, 0) == b"\x00\n{}" * 100_000


def test_who_asks_first_waits() -> None:
    shown = board()
    with Server(shown) as server:
        threading.Timer(0.3, shown.show, ("model", 2, b"late")).start()
        began = time.monotonic()
        assert asked(server, 2) == b"late"
        assert time.monotonic() - began > 0.2


def test_the_step_before_is_kept_and_no_other() -> None:
    shown = board()
    with Server(shown) as server:
        for step in range(4):
            shown.show("model", step, b"%d" % step)
        assert asked(server, 3) == b"3"
        assert asked(server, 2) == b"2"
        with pytest.raises(MismatchError, match="node 7 is at step 3 already"):
            asked(server, 1)


def test_all_rounds_of_a_step_are_kept_for_who_begins_it_again() -> None:
    """Three rounds a step: who is started again in step 1 needs messages 3 to 6 of who is ahead."""
    shown = Board(digest=DIGEST, node=7, horizon=5, rounds=3)
    with Server(shown) as server:
        for step in range(7):
            shown.show("model", step, b"%d" % step)
        assert [asked(server, step) for step in range(3, 7)] == [b"3", b"4", b"5", b"6"]
        with pytest.raises(MismatchError, match="node 7 is at step 6 already"):
            asked(server, 2)
        with pytest.raises(MismatchError, match="steps 0 to 14"):
            asked(server, 15)


def test_another_design_is_told_at_once() -> None:
    with Server(board()) as server, pytest.raises(MismatchError) as told:
        asked(server, 0, digest=OTHER, seconds=60)
    assert f"for the design {OTHER[:12]}, got node 7 runs the design {DIGEST[:12]}" in str(
        told.value
    )


@pytest.mark.parametrize(("step", "words"), [(5, "runs steps 0 to 4"), (-1, "another program")])
def test_steps_outside_the_horizon_are_refused(step: int, words: str) -> None:
    with Server(board()) as server, pytest.raises(MismatchError, match=words):
        asked(server, step)


def test_nobody_there_is_said_in_time() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    with pytest.raises(InputError, match="within 0.3 s, got none"):
        ask(address, digest=DIGEST, node=3, kind="model", seconds=0.3)


def test_a_node_that_comes_back_answers() -> None:
    first = Server(board())
    with first:
        address = first.address

    def again() -> None:
        time.sleep(0.3)
        shown = board()
        shown.show("model", 1, b"back")
        server = Server(shown, address)
        server.__enter__()
        stopped.append(server)

    stopped: list[Server] = []
    thread = threading.Thread(target=again)
    thread.start()
    assert ask(address, digest=DIGEST, node=3, kind="model", step=1, seconds=20) == b"back"
    thread.join()
    stopped[0].__exit__()


@pytest.mark.parametrize(
    "question",
    [
        b"GET / HTTP/1.1\r\n",
        b"[1]\n",
        b"\xff\xfe\n",
        b'{"digest": 1}\n',
        b"\n",
        json.dumps({"digest": DIGEST, "kind": "model", "step": 0, "from": [3]}).encode() + b"\n",
    ],
)
def test_other_programs_are_refused_and_the_server_goes_on(question: bytes) -> None:
    shown = board()
    shown.show("model", 0, b"here")
    with Server(shown) as server:
        with socket.create_connection(server.address, timeout=5) as connection:
            connection.sendall(question)
            assert "refused" in json.loads(connection.makefile("rb").readline())
        assert asked(server, 0) == b"here"


@pytest.mark.parametrize("answer", [b"hello\n", b'{"bytes": 9}\nshort', b'{"bytes": -1}\n', b""])
def test_answers_of_other_programs_are_no_answers(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(InputError, match="got none"):
            ask(listener.getsockname(), digest=DIGEST, node=3, kind="model", seconds=0.3)


def test_a_neighbour_that_shows_too_much_is_not_read() -> None:
    """It could take all memory otherwise."""
    shown = board()
    shown.show("model", 0, bytes(1001))
    with Server(shown) as server:
        of = {"digest": DIGEST, "node": 3, "kind": "model", "seconds": 5}
        with pytest.raises(MismatchError, match="peer: expected at most 1000 bytes, got 1001"):
            ask(server.address, **of, most=1000)
        assert len(ask(server.address, **of, most=1001)) == 1001


def test_a_node_knows_who_has_what_it_needs() -> None:
    shown = board()
    shown.show("done", 0, b"")
    assert not shown.wait_until_told("done", [3], seconds=0.05)
    with Server(shown) as server:
        ask(server.address, digest=DIGEST, node=3, kind="done", seconds=5)
        assert shown.wait_until_told("done", [3], seconds=5)
        assert not shown.wait_until_told("done", [3, 4], seconds=0.05)


def test_a_port_that_is_taken_is_named() -> None:
    with Server(board()) as server, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert server.address[1] != port
        with pytest.raises(InputError, match=f"a free port at 127.0.0.1:{port}"):
            Server(board(), ("127.0.0.1", port))


@pytest.mark.parametrize("tls", [False, True])
def test_a_port_of_nobody_that_answers_itself_is_nobody(
    monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    """A system may give who asks a port that nobody listens at that very port: it hears itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    original, heard = socket.create_connection, []
    der, public = public_of(certificate(Identity.new()), field="x")
    own = Links(Identity.new(), {0: der}, {0: public}) if tls else None

    def to_itself(to: tuple[str, int], timeout: float) -> socket.socket:
        made = original(to, timeout, source_address=to)
        assert made.getsockname() == made.getpeername()
        heard.append(made)
        return made

    monkeypatch.setattr(exchange.socket, "create_connection", to_itself)
    given = {"digest": DIGEST, "node": 3, "kind": "model", "seconds": 0.2}
    with pytest.raises(InputError, match="within 0.2 s, got none"):
        ask(address, other=0, lines=Lines(own), **given)  # type: ignore[arg-type]
    assert heard


def test_an_echo_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(connection.recv(1000))

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(InputError, match="got none"):
            ask(listener.getsockname(), digest=DIGEST, node=3, kind="model", seconds=0.1)


def test_who_breaks_off_leaves_no_word(capfd: pytest.CaptureFixture[str]) -> None:
    """A traceback for each would fill the pipe of whoever started the node, and stop it there."""
    shown = board()
    shown.show("model", 0, bytes(1 << 22))
    with Server(shown) as server:
        for _ in range(3):
            with socket.create_connection(server.address) as connection:
                said = f'{{"digest": "{DIGEST}", "from": 3, "kind": "model", "step": 0}}'
                connection.sendall(said.encode() + b"\n")
                connection.recv(10)
                reset = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # closed by a reset, as by kill -9
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        assert len(asked(server, 0)) == 1 << 22
        time.sleep(0.1)
    assert capfd.readouterr().err == ""


def test_an_address_is_asked_for_at_every_attempt() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = free.getsockname()
    shown = board()
    shown.show("model", 0, b"here")
    of = {"digest": DIGEST, "node": 3, "kind": "model", "seconds": 20, "other": 7}
    with Server(shown) as server:
        known = iter([nobody, nobody, server.address])
        assert ask(lambda: next(known), **of) == b"here"
    gone = iter([nobody, None])
    with pytest.raises(GoneError, match="an answer of node 7, got word that it is gone"):
        ask(lambda: next(gone), **of)


def test_a_connection_is_kept_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, original = [], socket.create_connection

    def counted(to: tuple[str, int], timeout: float) -> socket.socket:
        made.append(to)
        return original(to, timeout)

    monkeypatch.setattr(exchange.socket, "create_connection", counted)
    of = {"digest": DIGEST, "node": 3, "kind": "model", "seconds": 20, "other": 7}
    shown = board()
    with Lines() as lines:
        with Server(shown) as server:
            for step in range(3):
                shown.show("model", step, b"%d" % step)
                found = ask(server.address, step=step, lines=lines, **of)  # type: ignore[arg-type]
                assert found == b"%d" % step
            with pytest.raises(MismatchError, match="at most 0 bytes"):
                ask(server.address, step=2, most=0, lines=lines, **of)  # type: ignore[arg-type]
            assert ask(server.address, step=2, lines=lines, **of) == b"2"  # type: ignore[arg-type]
            assert len(made) == 2  # what was not read went with its connection
        again = board()  # started again at the same place, as after a kill
        again.show("model", 4, b"4")
        with Server(again, server.address):
            assert ask(server.address, step=4, lines=lines, **of) == b"4"  # type: ignore[arg-type]
    assert len(made) == 3


def test_a_server_that_is_left_answers_nobody() -> None:
    shown, of = board(), {"digest": DIGEST, "node": 3, "kind": "model", "other": 7}
    shown.show("model", 0, b"here")
    with Lines() as lines:
        with Server(shown) as server:
            assert ask(server.address, seconds=5, lines=lines, **of) == b"here"  # type: ignore[arg-type]
        with pytest.raises(InputError, match="got none"):
            ask(server.address, seconds=0.1, lines=lines, **of)  # type: ignore[arg-type]
