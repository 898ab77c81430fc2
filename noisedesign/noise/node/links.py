"""TLS between nodes by the standard library: each has a certificate that its Ed25519 identity signs
and that the others have as a file. Nobody else's is taken, so that no authority is needed."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import secrets
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from noisedesign.base.checks import InputError
from noisedesign.noise.agreement import Identity
from noisedesign.noise.keys import Secret

IDENTITY, IDENTITIES = "identity", "identities"
SUFFIX = ".pem"
HANDSHAKE = 0x16  # the first byte of whoever begins to talk over TLS (RFC 8446, section 5.1)
LINGER = 2.0  # seconds in which a refused neighbour may read why
_FOREVER = datetime.datetime(9999, 12, 31, 23, 59, 59)  # no expiry (RFC 5280, section 4.1.2.5)
_BEGIN = datetime.datetime(2000, 1, 1)
_REMEDY = (
    "`noisedesign-node identity FOLDER` makes the identity of a node and prints its certificate; "
    f"every node has those of its neighbours, {IDENTITIES}/NODE{SUFFIX} in its folder."
)


class UnknownCertificateError(InputError):
    """One side has another certificate than the other knows it by, or none."""


def certificate(identity: Identity) -> bytes:
    """Return its certificate, PEM: the same whenever it is made, without an end."""
    public, name = identity.public, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
    said = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name)
        .public_key(Ed25519PublicKey.from_public_bytes(public))
        .serial_number(int.from_bytes(hashlib.sha256(public).digest()[:16]) | 1)
        .not_valid_before(_BEGIN)
        .not_valid_after(_FOREVER)
        .sign(identity._key, algorithm=None)
    )
    return said.public_bytes(Encoding.PEM)


def public_of(pem: bytes, *, field: str) -> tuple[bytes, bytes]:
    """Return a certificate in DER and its Ed25519 public key."""
    try:
        read = x509.load_pem_x509_certificate(pem)
        key = read.public_key()
    except ValueError:
        raise InputError(field, expected="a certificate, PEM", got="something else") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(field, expected="a certificate of an Ed25519 identity", got="another key")
    return read.public_bytes(Encoding.DER), key.public_bytes_raw()


@dataclass(frozen=True, eq=False)
class Links:
    """The identity of a node, and the certificates that it knows its neighbours by, DER; where
    ``tls`` is off, identities sign what seeds are agreed by, and messages are plain."""

    identity: Identity
    certificates: Mapping[int, bytes]
    publics: Mapping[int, bytes]
    tls: bool = True

    @classmethod
    def load(
        cls,
        folder: Path,
        others: Iterable[int],
        *,
        identity: Path | None = None,
        identities: Path | None = None,
        tls: bool = True,
    ) -> Links | None:
        """The files of a node's folder, or those named; None where there are none of them."""
        own, known = identity or folder / IDENTITY, identities or folder / IDENTITIES
        if not own.exists() and not known.exists():
            if identity or identities:
                got = f"none at {own} and {known}"
                raise InputError(IDENTITIES, expected="files", got=got, remedy=_REMEDY)
            return None
        certificates, publics = {}, {}
        if not own.exists():
            expected = f"the secret of this node's identity at {own}, beside {known}"
            raise InputError(IDENTITY, expected=expected, got="none", remedy=_REMEDY)
        for node in others:
            file = known / f"{node}{SUFFIX}"
            try:
                pem = file.read_bytes()
            except OSError as error:
                expected = f"the certificate of node {node} at {file}"
                got = error.strerror or str(error)
                raise InputError(IDENTITIES, expected=expected, got=got, remedy=_REMEDY) from None
            certificates[node], publics[node] = public_of(pem, field=f"{IDENTITIES}.{node}")
        if len(set(publics.values())) < len(publics):
            raise InputError(IDENTITIES, expected="one for every node", got="one for two")
        return cls(Identity(Secret.load(own)), certificates, publics, tls)

    def accepted(self, raw: socket.socket) -> tuple[ssl.SSLSocket, int]:
        """A connection that a neighbour asked for, and which one it is by its certificate."""
        made = self._server.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        try:
            made.do_handshake()
        except ssl.SSLError:
            # Closed at once, what it sent before would reset the connection, and hide the reason.
            with contextlib.suppress(OSError), made:
                made.shutdown(socket.SHUT_WR)
                made.settimeout(LINGER)
                while made.recv(1 << 12):
                    pass
            raise
        shown = made.getpeercert(binary_form=True)
        return made, next(node for node, known in self.certificates.items() if known == shown)

    def asked(self, raw: socket.socket, node: int) -> ssl.SSLSocket:
        """A connection to a neighbour, which shows the certificate it is known by."""
        return self._client(node).wrap_socket(raw)

    @property
    def _server(self) -> ssl.SSLContext:
        return self._context(ssl.PROTOCOL_TLS_SERVER, tuple(self.certificates.values()))

    def _client(self, node: int) -> ssl.SSLContext:
        return self._context(ssl.PROTOCOL_TLS_CLIENT, (self.certificates[node],))

    def _context(self, protocol: int, trusted: tuple[bytes, ...]) -> ssl.SSLContext:
        return _context(self.identity, protocol, trusted)


@lru_cache(maxsize=1024)
def _context(identity: Identity, protocol: int, trusted: tuple[bytes, ...]) -> ssl.SSLContext:
    found = ssl.SSLContext(protocol)
    found.minimum_version = ssl.TLSVersion.TLSv1_3
    found.check_hostname = False  # a node is known by its certificate, wherever it is
    found.verify_mode = ssl.CERT_REQUIRED
    found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for one in trusted:
        found.load_verify_locations(cadata=one)
    password = secrets.token_bytes(32).hex().encode()  # ssl reads files alone: it is in none
    key = identity._key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    )
    with TemporaryDirectory() as folder:  # mode 700
        file = Path(folder, "tls.pem")
        file.write_bytes(key + certificate(identity))
        found.load_cert_chain(os.fspath(file), password=password)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        found.num_tickets = 0  # nobody goes on with a session
    return found


_UNKNOWN = ("UNKNOWN_CA", "CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "DECRYPT_ERROR")
_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


def refusal(error: ssl.SSLError, node: int, where: str) -> UnknownCertificateError | None:
    """Say what an error of TLS with a node means; None where asking again may help."""
    reason, at = error.reason or "", f"node {node} at {where}"
    if isinstance(error, ssl.SSLCertVerificationError):
        expected, got = f"the certificate of {at}", "another one"
    elif any(word in reason for word in _UNKNOWN):
        expected, got = f"{at} to know this node's certificate", "that it does not"
    elif any(word in reason for word in _PLAIN):
        expected, got = f"TLS of {at}", "a plain answer"
    else:
        return None
    return UnknownCertificateError("peer", expected=expected, got=got, remedy=_REMEDY)
