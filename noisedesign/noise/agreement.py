"""Seeds that nodes share: agreed between them without a dealer, or given away by one.

Two nodes agree by X25519 (RFC 7748). The key of the pair is HKDF-SHA256 of what they have in
common, salted with the hash of a transcript of all they must agree on; each proves by a tag that it
has the same key. Three or more take a seed of the lowest of them, sealed under the key of each pair
(ChaCha20-Poly1305, RFC 8439); all prove to all that theirs is the same, so that no lead can speak
for another member. With identities (Ed25519, RFC 8032) every node signs the transcript, as in the
SIGMA protocols (Krawczyk, CRYPTO 2003); without, who replaces messages can take a node's place."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.keys import SECRET_BYTES, Secret, derived
from noisedesign.noise.plan import OWN, SHARED, Plan

FORMAT, VERSION = "noisedesign-agreement", 1
MOST_BYTES = 1 << 20  # most bytes of a message
KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES = 32, 64, 32
HELLO, CONFIRM, SEED, TAG = "hello", "confirm", "seed", "tag"
_LABEL = b"noisedesign agreement 1 "
_ONE_USE = bytes(12)  # the nonce of a key that seals one message
_STOP = (
    "One of them has another plan, or somebody altered a message on its way. Draw no noise; "
    "give every node its part of one design, and agree again."
)

Letters = list[tuple[int, bytes]]  # messages, each with the node it is for
Group = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Identity:
    """Long-term signing key of one node; the others know its ``public`` part.

    Args:
        secret: that the key is derived from; for this alone, and not new for every run.

    Raises:
        InputError: no secret.

    Examples:
        >>> from noisedesign.noise import Identity
        >>> identity = Identity.new()
        >>> len(identity.public), len(identity.sign(b"a message"))
        (32, 64)
    """

    secret: Secret = field(repr=False)

    def __post_init__(self) -> None:
        expected = "a Secret, as Secret.new() draws one"
        _checks.instance(self.secret, Secret, field="secret", expected=expected)

    @classmethod
    def new(cls) -> Self:
        """Draw an identity from the operating system's generator.

        Returns:
            A new identity.
        """
        return cls(Secret.new())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load what :meth:`save` wrote.

        Args:
            path: of the file.

        Returns:
            The identity.

        Raises:
            InputError: as :meth:`Secret.load`.
        """
        return cls(Secret.load(path))

    def save(self, path: str | Path) -> Path:
        """Its secret, readable by this user only.

        Args:
            path: of a new file.

        Returns:
            ``path``.

        Raises:
            InputError: as :meth:`Secret.save`.
        """
        return self.secret.save(path)

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        seed = derived(self.secret.value, salt=b"", info=_LABEL + b"identity")
        return Ed25519PrivateKey.from_private_bytes(seed)

    @cached_property
    def public(self) -> bytes:
        """The 32 bytes that the others know it by."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, content: bytes) -> bytes:
        """Ed25519 signature.

        Args:
            content: what is signed.

        Returns:
            64 bytes.

        Raises:
            InputError: no bytes.
        """
        _checks.instance(content, bytes, field="content", expected="bytes")
        return self._key.sign(content)


_PLAN = "the Plan of a node, as design.node_plan(node) makes it"


class Agreement:
    """The part of one node in agreeing on the seeds of one run.

    Messages are bytes for any transport that keeps the order of those of one node to another::

        agreement = Agreement(plan)
        letters = agreement.start()
        while letters or not agreement.finished:
            for receiver, message in letters:
                send(receiver, message)
            letters = [] if agreement.finished else agreement.take(receive())
        source = noise(plan, secret=Secret.new(), seeds=agreement.secrets())

    A message that is refused changes nothing. For another run, or after an error, make a new one. A
    node that may have to resume keeps what ``secrets`` gave (:meth:`Secret.save`).

    Args:
        plan: of this node.
        identity: of this node; its peers must know its public part.
        identities: public part of the identity of every peer, by node, from a source that is
            trusted. Together with ``identity``, or not at all.

    Attributes:
        peers: the nodes it shares seeds with, ascending.
        authenticated: whether identities keep anybody else from taking the place of a peer.

    Raises:
        InputError: an identity without those of all peers, or the reverse; a plan whose streams
            have no holders.

    Examples:
        Two nodes that share the seed of their edge, with a list for the network.

        >>> import noisedesign as nd
        >>> from noisedesign.noise import Agreement
        >>> target = nd.PrivacyTarget(epsilon=1.0, steps=1)
        >>> how = {"structure": nd.SpaceStructure(kind="edge-local"), "privacy": target}
        >>> edge, weights = nd.build_graph("path", nodes=2), "lazy-metropolis-hastings"
        >>> problem = nd.SpaceProblem.from_graph(edge, weights=weights, **how)
        >>> design = nd.solve(problem).design
        >>> nodes = [Agreement(design.node_plan(node)) for node in (0, 1)]
        >>> letters = [letter for node in nodes for letter in node.start()]
        >>> while letters:
        ...     receiver, message = letters.pop(0)
        ...     letters += nodes[receiver].take(message)
        >>> [node.finished for node in nodes]
        [True, True]
        >>> mine, yours = (node.secrets() for node in nodes)
        >>> [mine[name].fingerprint == yours[name].fingerprint for name in mine]
        [True]
    """

    def __init__(
        self,
        plan: Plan,
        *,
        identity: Identity | None = None,
        identities: Mapping[int, bytes] | None = None,
    ) -> None:
        _checks.instance(plan, Plan, field="plan", expected=_PLAN)
        if identity is not None:
            expected = "an Identity, as Identity.new() makes one"
            _checks.instance(identity, Identity, field="identity", expected=expected)
        if identities is not None:
            expected = "the public part of every peer's identity, by node"
            _checks.instance(identities, Mapping, field="identities", expected=expected)
        self.plan, self.identity = plan, identity
        shared = [stream for stream in plan.streams if stream.source == SHARED]
        self._streams = {stream.name: _holders(stream.holders, plan) for stream in shared}
        members = {node for holders in self._streams.values() for node in holders}
        self.peers = tuple(sorted(members - {plan.node}))
        self.authenticated = identity is not None
        self._identities = _identities(identity, identities, self.peers)
        self._private: X25519PrivateKey | None = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()
        self._pairs: dict[int, _Pair] = {}
        self._groups = {
            holders: _Circle(digest=plan.digest, members=holders, names=self._names(holders))
            for holders in set(self._streams.values())
            if len(holders) > 2
        }
        for circle in self._groups.values():
            if circle.lead == plan.node:
                circle.secret = Secret.new()

    def _names(self, holders: Iterable[int]) -> list[str]:
        """Streams that these nodes have in common."""
        wanted = set(holders)
        return sorted(name for name, members in self._streams.items() if wanted <= set(members))

    def start(self) -> Letters:
        """The first message to every peer.

        Returns:
            Messages, each with the node it is for.
        """
        shown = {} if self.identity is None else {"identity": self.identity.public}
        said = {"key": self.public, **shown}
        return [(peer, self._letter(HELLO, peer, said)) for peer in self.peers]

    def _letter(
        self, kind: str, receiver: int, values: Mapping[str, bytes], *, group: Group = ()
    ) -> bytes:
        said = {
            "format": FORMAT,
            "version": VERSION,
            "kind": kind,
            "digest": self.plan.digest,
            "sender": self.plan.node,
            "receiver": receiver,
            **({"group": list(group)} if group else {}),
            **{name: value.hex() for name, value in values.items()},
        }
        return json.dumps(said).encode()

    def take(self, message: bytes) -> Letters:
        """Answer a message of a peer.

        Args:
            message: as it arrived.

        Returns:
            Messages, each with the node it is for; there may be none.

        Raises:
            InputError: a message of another design, version or run, or for another node; a weak
                public key; another identity or signature; a key or seed that the other has not.
        """
        said = _read(message)
        sender = self._sender(said)
        if said.kind == HELLO:
            return self._greeted(sender, said)
        pair = self._pairs.get(sender)
        if pair is None:
            raise _malformed(f"the key of node {sender} first", f"its {said.kind!r}")
        if said.kind == CONFIRM:
            return self._confirmed(sender, pair, said)
        circle = self._groups.get(said.group)
        if circle is None or sender not in circle.members:
            expected = f"a group of nodes {self.plan.node} and {sender}"
            raise _malformed(expected, f"{list(said.group)}")
        if said.kind == SEED:
            return self._given(sender, pair, circle, said)
        self._proved(sender, circle, said)
        return []

    def _sender(self, said: _Letter) -> int:
        if said.digest != self.plan.digest:
            expected = f"node {said.sender} to have the design {self.plan.digest[:12]}"
            got = f"{said.digest[:12]}"
            raise _failed(expected, got, "Give every node its part of one design.")
        if said.receiver != self.plan.node:
            raise _malformed(f"one for node {self.plan.node}", f"one for node {said.receiver}")
        if said.sender not in self.peers:
            shared = ", ".join(map(str, self.peers)) or "nobody"
            expected = f"one of those that share a seed with node {self.plan.node}: {shared}"
            raise _malformed(expected, f"one of node {said.sender}")
        return said.sender

    def _greeted(self, sender: int, said: _Letter) -> Letters:
        key, identity = said.bytes_of("key", KEY_BYTES), None
        if self.authenticated:
            identity = self._identities[sender]
            if said.values.get("identity") != identity.hex():
                expected = f"node {sender} to have the identity {identity.hex()[:12]}"
                remedy = "Give every node an identity, and the public parts of all to its peers."
                raise _failed(expected, str(said.values.get("identity", "none"))[:12], remedy)
        elif "identity" in said.values:
            expected = f"the identity of node {sender}, which has one"
            remedy = "Either all nodes have identities, or none: give identity and identities."
            raise InputError("identities", expected=expected, got="none", remedy=remedy)
        if sender in self._pairs:
            if self._pairs[sender].key == key:
                return []
            remedy = (
                "A node that was restarted takes the secrets it saved; without them all "
                "agree again."
            )
            raise _failed(f"one key of node {sender} a run", "another", remedy)
        pair = self._pairs[sender] = self._paired(sender, key, identity)
        if len(self._pairs) == len(self.peers):
            self._private = None  # whoever takes this machine later finds no key of this run
        confirmation = (sender, self._letter(CONFIRM, sender, pair.proof(self.plan.node)))
        ours = [c for c in self._groups.values() if c.secret is not None and sender in c.members]
        return [confirmation, *(self._tag(c, sender) for c in ours if c.lead != self.plan.node)]

    def _paired(self, sender: int, key: bytes, identity: bytes | None) -> _Pair:
        assert self._private is not None
        refused = "a public key that leads to a secret"
        if key == self.public:
            raise _failed(refused, f"our own from node {sender}", "")
        try:
            common = self._private.exchange(X25519PublicKey.from_public_bytes(key))
        except ValueError:  # a point of low order: the secret would be zero whatever our key
            raise _failed(refused, f"one of low order from node {sender}") from None
        own = (self.plan.node, self.public, self.identity.public if self.identity else b"")
        ends = sorted([own, (sender, key, identity or b"")])
        transcript = _bound(
            "pair",
            self.plan.digest,
            [[node, public.hex(), known.hex()] for node, public, known in ends],
            [[name, self._streams[name]] for name in self._names((self.plan.node, sender))],
        )
        salt = hashlib.sha256(transcript).digest()
        root = derived(common, salt=salt, info=_LABEL + b"pair")
        return _Pair(root=root, transcript=transcript, key=key, identity=self.identity)

    def _confirmed(self, sender: int, pair: _Pair, said: _Letter) -> Letters:
        tag = said.bytes_of("tag", TAG_BYTES)
        if not hmac.compare_digest(tag, pair.tag(sender)):
            raise _failed(f"node {sender} to have the same key", "another")
        if self.authenticated:
            signature = said.bytes_of("signature", SIGNATURE_BYTES)
            public = Ed25519PublicKey.from_public_bytes(self._identities[sender])
            try:
                public.verify(signature, pair.signed(sender))
            except InvalidSignature:
                raise _failed(f"the signature of node {sender}", "one of somebody else") from None
        if pair.confirmed:
            return []
        pair.confirmed = True
        return [
            (sender, self._letter(SEED, sender, {"sealed": pair.seal(circle)}, group=group))
            for group, circle in sorted(self._groups.items())
            if circle.lead == self.plan.node and sender in group
        ]

    def _given(self, sender: int, pair: _Pair, circle: _Circle, said: _Letter) -> Letters:
        if sender != circle.lead:
            expected = f"the seed of nodes {list(circle.members)} from node {circle.lead}"
            raise _malformed(expected, f"one from node {sender}")
        if not pair.confirmed:
            raise _malformed(f"the confirmation of node {sender} first", "a seed")
        secret = pair.opened(said.bytes_of("sealed", SECRET_BYTES + 16), circle)
        if circle.secret is not None:
            if circle.secret.value != secret.value:
                raise _failed(f"one seed of nodes {list(circle.members)}", "another")
            return []
        for other, tag in circle.tags.items():
            circle.check(secret, other, tag, self._pairs[other])
        circle.secret = secret
        return [self._tag(circle, member) for member in circle.members if member in self._pairs]

    def _tag(self, circle: _Circle, member: int) -> tuple[int, bytes]:
        """Prove to a member whose key this node has that it has the seed of the group."""
        assert circle.secret is not None
        proof = circle.tag(circle.secret, self.plan.node, self._pairs[member])
        return member, self._letter(TAG, member, {"tag": proof}, group=circle.members)

    def _proved(self, sender: int, circle: _Circle, said: _Letter) -> None:
        tag = said.bytes_of("tag", TAG_BYTES)
        if circle.secret is not None:
            circle.check(circle.secret, sender, tag, self._pairs[sender])
        circle.tags[sender] = tag

    @property
    def waiting(self) -> tuple[int, ...]:
        """Peers from whom a message is still to come."""
        confirmed = {peer for peer, pair in self._pairs.items() if pair.confirmed}
        silent = set(self.peers) - confirmed
        for circle in self._groups.values():
            if circle.secret is None:
                silent.add(circle.lead)
            silent |= set(circle.members) - {self.plan.node, circle.lead} - set(circle.tags)
        return tuple(sorted(silent))

    @property
    def finished(self) -> bool:
        """Whether every peer has proved that its secrets are the same."""
        return not self.waiting

    def secrets(self) -> dict[str, Secret]:
        """The secret of every shared stream of the plan.

        Returns:
            Secrets by name of their streams, the ``seeds`` of :func:`noisedesign.noise.noise`.

        Raises:
            InputError: a peer has not confirmed.
        """
        if self.waiting:
            expected = f"the confirmation of nodes {', '.join(map(str, self.peers))}"
            got = f"none of {', '.join(map(str, self.waiting))}"
            remedy = "Without it the noise of the two may differ, and would not cancel."
            raise InputError("seeds", expected=expected, got=got, remedy=remedy)
        found = {}
        for name, holders in self._streams.items():
            if len(holders) > 2:
                root = self._groups[holders].secret
            else:
                (peer,) = set(holders) - {self.plan.node}
                root = self._pairs[peer].secret
            assert root is not None
            found[name] = root.child(name, digest=self.plan.digest)
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class _Pair:
    """The knowledge this node shares with one other: the ``root`` of the keys of the two, the
    other's public ``key`` of this run, and the identity by which this node signs."""

    root: bytes
    transcript: bytes
    key: bytes
    identity: Identity | None
    confirmed: bool = False

    def derived(self, what: bytes, salt: bytes = b"") -> bytes:
        return derived(self.root, salt=salt, info=_LABEL + what)

    @property
    def secret(self) -> Secret:
        """Root of the streams that only these two hold."""
        return Secret(self.derived(b"streams"))

    def tag(self, sender: int) -> bytes:
        """Return the proof that ``sender`` has this key and transcript."""
        said = _bound("tag", sender) + self.transcript
        return hmac.digest(self.derived(b"confirm"), said, "sha256")

    def signed(self, sender: int) -> bytes:
        """Return the bytes that an identity signs."""
        return _LABEL + _bound("signature", sender) + self.transcript

    def proof(self, node: int) -> dict[str, bytes]:
        found = {"tag": self.tag(node)}
        if self.identity is not None:
            found["signature"] = self.identity.sign(self.signed(node))
        return found

    def _cipher(self, circle: _Circle) -> ChaCha20Poly1305:
        salt = hashlib.sha256(circle.transcript).digest()
        return ChaCha20Poly1305(self.derived(b"seal %d" % circle.lead, salt))

    def seal(self, circle: _Circle) -> bytes:
        """The seed of a group, for this other alone."""
        assert circle.secret is not None
        bound = self.transcript + circle.transcript
        return self._cipher(circle).encrypt(_ONE_USE, circle.secret.value, bound)

    def opened(self, sealed: bytes, circle: _Circle) -> Secret:
        bound = self.transcript + circle.transcript
        try:
            return Secret(self._cipher(circle).decrypt(_ONE_USE, sealed, bound))
        except InvalidTag:
            expected = f"the seed of nodes {list(circle.members)}, sealed by node {circle.lead}"
            raise _failed(expected, "one that was sealed with another key") from None


@dataclass(kw_only=True, eq=False, repr=False)
class _Circle:
    """Three nodes or more that hold the same streams; ``tags`` by those who proved that they do."""

    digest: str
    members: Group
    names: list[str]
    secret: Secret | None = None
    tags: dict[int, bytes] = field(default_factory=dict)

    @property
    def lead(self) -> int:
        """Who draws the seed."""
        return min(self.members)

    @property
    def transcript(self) -> bytes:
        return _bound("group", self.digest, self.members, self.names)

    def tag(self, secret: Secret, sender: int, pair: _Pair) -> bytes:
        """Return the proof that ``sender`` has this seed, by a key that the lead lacks."""
        salt = pair.derived(b"group")
        key = derived(secret.value, salt=salt, info=_LABEL + b"confirm group")
        return hmac.digest(key, _bound("tag", sender) + self.transcript, "sha256")

    def check(self, secret: Secret, sender: int, tag: bytes, pair: _Pair) -> None:
        if not hmac.compare_digest(tag, self.tag(secret, sender, pair)):
            expected = f"nodes {self.lead} and {sender} to have the same seed of the group"
            raise _failed(expected, "another")


@dataclass(frozen=True, kw_only=True)
class _Letter:
    """A message, as it says of itself."""

    kind: str
    digest: str
    sender: int
    receiver: int
    group: Group
    values: Mapping[str, Any]

    def bytes_of(self, name: str, length: int) -> bytes:
        try:
            found = bytes.fromhex(self.values[name])
        except (KeyError, TypeError, ValueError):
            found = b""
        if len(found) != length:
            raise _malformed(f"{2 * length} hexadecimal digits as its {name}", "something else")
        return found


_NAMES = ("format", "version", "kind", "digest", "sender", "receiver")


def _read(message: Any) -> _Letter:
    if not isinstance(message, bytes | bytearray) or len(message) > MOST_BYTES:
        raise _malformed(f"at most {MOST_BYTES} bytes", _checks.describe(message))
    try:
        said = json.loads(bytes(message))
        head = {name: said[name] for name in _NAMES}
        group = tuple(said.get("group", ()))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise _malformed("one of another node that agrees", "something else") from None
    if head["format"] != FORMAT or head["version"] != VERSION:
        got = _checks.describe([head["format"], head["version"]])
        remedy = "Run the same version of noisedesign on all nodes."
        raise InputError("message", expected=f"{FORMAT}, version {VERSION}", got=got, remedy=remedy)
    _checks.one_of(head["kind"], field="message.kind", allowed=(HELLO, CONFIRM, SEED, TAG))
    for name in ("sender", "receiver"):
        _checks.positive_int(head[name], field=f"message.{name}", minimum=0)
    for node in group:
        _checks.positive_int(node, field="message.group", minimum=0)
    _checks.text(head["digest"], field="message.digest")
    about = {name: head[name] for name in _NAMES[2:]}
    return _Letter(**about, group=group, values=said)


def _failed(expected: str, got: str, remedy: str = _STOP) -> InputError:
    return InputError("agreement", expected=expected, got=got, remedy=remedy)


def _malformed(expected: str, got: str) -> InputError:
    return InputError("message", expected=expected, got=got)


def _bound(*facts: Any) -> bytes:
    """Facts in bytes that no other facts have."""
    return json.dumps(facts, separators=(",", ":")).encode() + b"\n"


def _holders(holders: tuple[int, ...], plan: Plan) -> Group:
    found = tuple(sorted(holders))
    if plan.node not in found or len(set(found)) < 2 or len(set(found)) < len(found):
        expected = f"node {plan.node} and others to hold what it shares"
        raise InputError("plan", expected=expected, got=f"nodes {list(holders)}")
    return found


def _identities(
    own: Identity | None, others: Mapping[int, bytes] | None, peers: tuple[int, ...]
) -> dict[int, bytes]:
    if own is None and others is None:
        return {}
    if own is None:
        raise InputError("identity", expected="this node's own besides", got="those of others only")
    missing = [peer for peer in peers if peer not in (others or {})]
    if missing or others is None:
        expected = f"the public part of the identity of every peer: {', '.join(map(str, peers))}"
        got = f"none of {', '.join(map(str, missing))}" if missing else "none"
        raise InputError("identities", expected=expected, got=got)
    for node, public in others.items():
        if not isinstance(public, bytes) or len(public) != KEY_BYTES:
            expected = f"{KEY_BYTES} bytes of node {node}, as its Identity.public is"
            raise InputError("identities", expected=expected, got=_checks.describe(public))
    return dict(others)


def deal(plans: Iterable[Plan], secret: Secret) -> dict[int, dict[str, Secret]]:
    """Make the seeds that a dealer, who then can compute their noise, gives to those who hold them:
    ``seeds`` of :func:`noisedesign.noise.noise`, by node.

    Args:
        plans: of all nodes, of one design.
        secret: the dealer's, for one run of one design.

    Returns:
        By node, its secrets by name of their streams.

    Raises:
        InputError: plans of two designs, or two of one node; no secret.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.noise import Secret, deal
        >>> target = nd.PrivacyTarget(epsilon=1.0, steps=1)
        >>> ring = nd.build_graph("ring", nodes=4)
        >>> design = nd.solve(nd.SpaceProblem.from_graph(ring, privacy=target)).design
        >>> seeds = deal([design.node_plan(node) for node in range(4)], Secret.new())
        >>> sorted(seeds)
        [0, 1, 2, 3]
    """
    found: dict[int, dict[str, Secret]] = {}
    digest, secret = "", Secret.of(secret)
    for plan in _checks.listed(plans, field="plans", expected="the plans of all nodes, a list"):
        _checks.instance(plan, Plan, field="plans", expected=_PLAN)
        digest = digest or plan.digest
        if plan.digest != digest:
            got = f"{digest[:12]} and {plan.digest[:12]}"
            raise InputError("plans", expected="those of one design", got=got)
        if plan.node in found:
            raise InputError("plans", expected="one of every node", got=f"two of node {plan.node}")
        dealt = [stream.name for stream in plan.streams if stream.source != OWN]
        found[plan.node] = {name: secret.child(name, digest=digest) for name in dealt}
    return found
