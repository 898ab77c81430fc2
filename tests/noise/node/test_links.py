"""TLS between nodes: who is let in, and the words for those who are not."""

import contextlib
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from noisedesign.base.checks import InputError
from noisedesign.noise import Identity, Secret
from noisedesign.noise.node import links as module
from noisedesign.noise.node.exchange import Board, Lines, MismatchError, Server, ask
from noisedesign.noise.node.links import Links, UnknownCertificateError, certificate, public_of

DIGEST = "a1" * 32
ANN, BOB, EVE = (Identity(Secret(bytes(range(first, first + 32)))) for first in (0, 50, 100))


def links(own: Identity, others: Mapping[int, Identity], *, tls: bool = True) -> Links:
    read = {node: public_of(certificate(one), field="x") for node, one in others.items()}
    ders = {node: der for node, (der, _) in read.items()}
    return Links(own, ders, {node: public for node, (_, public) in read.items()}, tls)


def shown() -> Board:
    board = Board(digest=DIGEST, node=0, horizon=5)
    board.show("model", 0, b"\x00" * 70_000)
    board.show("letter to 1", 0, b"for node 1")
    board.show("letter to 2", 0, b"for node 2")
    return board


def asked(
    server: Server, own: Links | None, *, node: int = 1, kind: str = "model", seconds: float = 5
) -> bytes:
    given = {"digest": DIGEST, "node": node, "kind": kind, "seconds": seconds, "other": 0}
    with Lines(own) as lines:
        return ask(server.address, lines=lines, **given)  # type: ignore[arg-type]


def test_neighbours_that_know_each_other_talk() -> None:
    with Server(shown(), links=links(ANN, {1: BOB, 2: EVE})) as server:
        assert asked(server, links(BOB, {0: ANN})) == b"\x00" * 70_000
        assert asked(server, links(EVE, {0: ANN}), node=2, kind="letter to 2") == b"for node 2"


def test_what_is_sent_is_encrypted() -> None:
    """Somebody on the way reads no word of question or answer."""
    seen = b""

    def relay(listener: socket.socket, to: tuple[str, int]) -> None:
        nonlocal seen
        source, _ = listener.accept()
        with source, socket.create_connection(to) as target:

            def pump(one: socket.socket, other: socket.socket) -> None:
                nonlocal seen
                with contextlib.suppress(OSError):  # one side ends before the other
                    while piece := one.recv(1 << 16):
                        seen += piece
                        other.sendall(piece)

            back = threading.Thread(target=pump, args=(target, source), daemon=True)
            back.start()
            pump(source, target)

    given = {"digest": DIGEST, "node": 1, "kind": "letter to 1", "seconds": 5, "other": 0}
    for own, known in ((links(BOB, {0: ANN}), True), (None, False)):
        seen = b""
        serving = links(ANN, {1: BOB}) if known else None
        with (
            Server(shown(), links=serving) as server,
            socket.create_server(("127.0.0.1", 0)) as middle,
        ):
            threading.Thread(target=relay, args=(middle, server.address), daemon=True).start()
            with Lines(own) as lines:
                got = ask(middle.getsockname(), lines=lines, **given)  # type: ignore[arg-type]
        assert got == b"for node 1"
        assert (b"for node 1" in seen) is (not known)
        assert (DIGEST.encode() in seen) is (not known)


def test_a_certificate_that_the_other_does_not_know_is_refused_by_name() -> None:
    with (
        Server(shown(), links=links(ANN, {1: BOB})) as server,
        pytest.raises(
            UnknownCertificateError,
            match=r"peer: expected node 0 at 127.0.0.1:\d+ to know this node's certificate",
        ),
    ):
        asked(server, links(EVE, {0: ANN}), seconds=60)


def test_another_certificate_than_the_known_one_is_refused_by_name() -> None:
    with (
        Server(shown(), links=links(EVE, {1: BOB})) as server,
        pytest.raises(
            UnknownCertificateError,
            match=r"peer: expected the certificate of node 0 at 127.0.0.1:\d+, got another",
        ),
    ):
        asked(server, links(BOB, {0: ANN}), seconds=60)


def test_a_neighbour_in_the_place_of_another_is_refused() -> None:
    """Eve is known, as node 2: at the address of node 0 that is not enough."""
    with (
        Server(shown(), links=links(EVE, {1: BOB})) as server,
        pytest.raises(UnknownCertificateError, match="the certificate of node 0 at"),
    ):
        asked(server, links(BOB, {0: ANN, 2: EVE}), seconds=60)


def test_plain_and_tls_tell_each_other() -> None:
    with (
        Server(shown(), links=links(ANN, {1: BOB})) as server,
        pytest.raises(MismatchError, match="node 0 talks over TLS alone"),
    ):
        asked(server, None, seconds=60)
    with (
        Server(shown()) as server,
        pytest.raises(UnknownCertificateError, match="expected TLS of node 0 .*, got a plain"),
    ):
        asked(server, links(BOB, {0: ANN}), seconds=60)


def test_identities_without_tls_are_plain() -> None:
    with Server(shown(), links=links(ANN, {1: BOB}, tls=False)) as server:
        assert asked(server, links(BOB, {0: ANN}, tls=False), kind="letter to 1") == b"for node 1"


@pytest.mark.parametrize(
    ("node", "kind", "words"),
    [
        (2, "model", "node 0 sees the certificate of node 1"),
        (1, "letter to 2", "node 0 has no such letter for node 1"),
    ],
)
def test_nobody_asks_in_the_name_of_another(node: int, kind: str, words: str) -> None:
    with (
        Server(shown(), links=links(ANN, {1: BOB, 2: EVE})) as server,
        pytest.raises(MismatchError, match=words),
    ):
        asked(server, links(BOB, {0: ANN}), node=node, kind=kind)


def test_a_certificate_is_the_same_whenever_it_is_made() -> None:
    pem = certificate(ANN)
    assert pem == certificate(Identity(ANN.secret))
    der, public = public_of(pem, field="x")
    assert public == ANN.public
    read = x509.load_der_x509_certificate(der)
    read.verify_directly_issued_by(read)
    assert read.not_valid_after_utc.year == 9999
    assert b"PRIVATE" not in pem


def test_no_key_is_left_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    class Watched(module.TemporaryDirectory):  # type: ignore[type-arg]
        def __exit__(self, *how: object) -> None:
            written.extend(file.read_bytes() for file in Path(self.name).iterdir())
            super().__exit__(*how)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "TemporaryDirectory", Watched)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert links(Identity.new(), {1: BOB})._server
    assert len(written) == 1
    assert b"ENCRYPTED PRIVATE KEY" in written[0]
    assert not list(tmp_path.iterdir())


# --- files ----------------------------------------------------------------------------------------


def folder(path: Path, *, others: Mapping[int, Identity]) -> Path:
    (path / "identities").mkdir(parents=True)
    ANN.save(path / "identity")
    for node, one in others.items():
        (path / f"identities/{node}.pem").write_bytes(certificate(one))
    return path


def test_files_of_a_folder(tmp_path: Path) -> None:
    assert Links.load(tmp_path, (1,)) is None
    found = Links.load(folder(tmp_path / "a", others={1: BOB, 2: EVE}), (1, 2))
    assert found is not None
    assert found.identity.public == ANN.public
    assert found.publics == {1: BOB.public, 2: EVE.public}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("identity", "identity: expected the secret of this node's identity"),
        ("identities", "identities: expected the certificate of node 1 at"),
        ("identities/2.pem", "identities: expected the certificate of node 2 at"),
    ],
)
def test_a_file_that_was_forgotten_is_named(tmp_path: Path, change: str, words: str) -> None:
    """Half of what TLS needs is no reason to go on without it."""
    at = folder(tmp_path / "a", others={1: BOB, 2: EVE})
    if change == "identities":
        for pem in (at / change).iterdir():
            pem.unlink()
        (at / change).rmdir()
    else:
        (at / change).unlink()
    with pytest.raises(InputError, match=words):
        Links.load(at, (1, 2))


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    at = folder(tmp_path / "a", others={1: BOB, 2: BOB})
    with pytest.raises(InputError, match="identities: expected one for every node, got one for"):
        Links.load(at, (1, 2))
    (at / "identities/1.pem").write_text("trust me")
    with pytest.raises(InputError, match=r"identities.1: expected a certificate, PEM"):
        Links.load(at, (1, 2))
    name = x509.Name([])
    key = generate_private_key(SECP256R1())
    other = x509.CertificateBuilder(name, name, key.public_key(), 7, module._BEGIN, module._FOREVER)
    signed = other.sign(key, SHA256())
    (at / "identities/1.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    with pytest.raises(InputError, match="a certificate of an Ed25519 identity, got another key"):
        Links.load(at, (1, 2))
    with pytest.raises(InputError, match="identities: expected files, got none at"):
        Links.load(tmp_path, (1,), identity=tmp_path / "none")
