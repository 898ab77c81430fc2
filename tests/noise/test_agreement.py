"""Seeds of pairs and groups: the same at all who hold them, and every difference is noticed."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from noisedesign.base.checks import InputError
from noisedesign.noise import Agreement, Claim, Identity, Plan, Secret, Stream, deal, noise

DIGEST = "5e" * 32
TRIANGLE = ((0, 1), (1, 2), (0, 2))
MIXED = ((0, 1), (0, 1), (0, 1, 2), (0, 1, 2), (1, 2, 3), (2, 3))

Agreements = Mapping[int, Agreement]
Letter = dict[str, Any]


def plans(groups: tuple[tuple[int, ...], ...], *, digest: str = DIGEST) -> dict[int, Plan]:
    """A seed a group, with coefficient 1 at the first of its holders and -1 at the others."""
    nodes = range(1 + max(map(max, groups)))
    return {
        u: Plan(
            digest=digest,
            node=u,
            nodes=len(nodes),
            horizon=4,
            claim=Claim(noise_stddev=1.0),
            streams=tuple(
                Stream(
                    name=f"seed {k}",
                    coefficient=1.0 if u == holders[0] else -1.0,
                    source="shared",
                    holders=holders,
                )
                for k, holders in enumerate(groups)
                if u in holders
            ),
        )
        for u in nodes
    }


def agreements(of: Mapping[int, Plan], *, signed: bool = False) -> dict[int, Agreement]:
    if not signed:
        return {u: Agreement(plan) for u, plan in of.items()}
    known = {u: Identity(Secret(bytes([u + 1, *range(31)]))) for u in of}
    public = {u: identity.public for u, identity in known.items()}
    return {u: Agreement(p, identity=known[u], identities=public) for u, p in of.items()}


def deliver(
    nodes: Agreements,
    change: Callable[[Letter], Letter | None] = lambda letter: letter,
    order: np.random.Generator | None = None,
) -> list[bytes]:
    """Pass messages on until there are none; ``change`` alters or drops them.

    Messages of one node to another stay in order; others are mixed up where there is an ``order``.
    """
    ways: dict[tuple[int, int], list[bytes]] = {}
    passed = []

    def post(sender: int, letters: list[tuple[int, bytes]]) -> None:
        for receiver, message in letters:
            ways.setdefault((sender, receiver), []).append(message)

    for u, agreement in nodes.items():
        post(u, agreement.start())
    while ways:
        keys = sorted(ways)
        way = keys[0 if order is None else int(order.integers(len(keys)))]
        message = ways[way].pop(0)
        if not ways[way]:
            del ways[way]
        passed.append(message)
        altered = change(json.loads(message))
        if altered is not None:
            post(way[1], nodes[way[1]].take(json.dumps(altered).encode()))
    return passed


def shared(nodes: Agreements) -> dict[str, set[bytes]]:
    """The secrets that nodes have of every stream."""
    found: dict[str, set[bytes]] = {}
    for agreement in nodes.values():
        for name, secret in agreement.secrets().items():
            found.setdefault(name, set()).add(secret.value)
    return found


# --- the same at all ----------------------------------------------------------------------------


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("groups", [((0, 1),), TRIANGLE, MIXED, (tuple(range(7)),)])
def test_all_who_hold_a_stream_have_its_secret(
    groups: tuple[tuple[int, ...], ...], signed: bool
) -> None:
    of = plans(groups)
    runs = []
    for _ in range(2):
        nodes = agreements(of, signed=signed)
        deliver(nodes)
        assert all(agreement.finished for agreement in nodes.values())
        assert all(agreement.authenticated == signed for agreement in nodes.values())
        for u, agreement in nodes.items():
            assert set(agreement.secrets()) == {stream.name for stream in of[u].streams}
        runs.append(shared(nodes))
    values = [value for run in runs for secrets in run.values() for value in secrets]
    assert len(values) == 2 * len(groups)  # one secret a stream at all its holders
    assert len(set(values)) == len(values)  # another one for every stream and run


@pytest.mark.parametrize("seed", range(20))
def test_messages_of_different_nodes_may_come_in_any_order(seed: int) -> None:
    nodes = agreements(plans(MIXED))
    deliver(nodes, order=np.random.default_rng(seed))
    assert all(len(secrets) == 1 for secrets in shared(nodes).values())


def test_noise_of_agreed_seeds_cancels_bit_by_bit() -> None:
    of = plans(((0, 1),))
    nodes = agreements(of)
    deliver(nodes)
    drawn = [noise(of[u], seeds=nodes[u].secrets(), record=False).step(3, 50) for u in (0, 1)]
    assert drawn[0].any()
    assert np.array_equal(drawn[0], -drawn[1])


def test_a_node_without_shared_streams_has_nobody_to_agree_with() -> None:
    own = Plan(
        digest=DIGEST,
        node=0,
        horizon=4,
        claim=Claim(noise_stddev=1.0),
        streams=(Stream(name="node 0", coefficient=1.0, holders=(0,)),),
    )
    agreement = Agreement(own)
    assert agreement.start() == []
    assert agreement.finished
    assert agreement.secrets() == {}


# --- by another route -----------------------------------------------------------------------------

P = 2**255 - 19


def x25519(scalar: bytes, point: bytes) -> bytes:
    """RFC 7748, section 5, in integers."""
    k = int.from_bytes(scalar, "little")
    k = (k & ((1 << 254) - 8)) | 1 << 254
    u = int.from_bytes(point, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3, swapped = 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swapped ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swapped = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % P, b * b % P, d * a % P, c * b % P
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swapped:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869, one block."""
    extracted = hmac.digest(salt or bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def test_our_ladder_is_that_of_the_standard() -> None:
    """RFC 7748, section 5.2, the first vector."""
    scalar = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"
    point = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
    found = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert x25519(bytes.fromhex(scalar), bytes.fromhex(point)).hex() == found


@pytest.mark.parametrize("signed", [False, True])
def test_the_secret_of_a_pair_by_integers_and_hmac(
    signed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ladder, HKDF, transcript and names again, by nothing that is used there; signatures are of
    the transcript and the one who signs."""
    scalars = {0: bytes(range(32)), 1: bytes(range(100, 132))}
    made = iter(X25519PrivateKey.from_private_bytes(scalar) for scalar in scalars.values())
    monkeypatch.setattr(X25519PrivateKey, "generate", lambda: next(made))
    nodes = agreements(plans(((0, 1), (0, 1))), signed=signed)
    passed = [json.loads(message) for message in deliver(nodes)]
    known = {u: nodes[u].identity.public if signed else b"" for u in (0, 1)}  # type: ignore[union-attr]

    base = (9).to_bytes(32, "little")
    public = {u: x25519(scalar, base) for u, scalar in scalars.items()}
    common = x25519(scalars[0], public[1])
    assert common == x25519(scalars[1], public[0])
    label = b"noisedesign agreement 1 "
    transcript = (
        f'["pair","{DIGEST}",[[0,"{public[0].hex()}","{known[0].hex()}"],'
        f'[1,"{public[1].hex()}","{known[1].hex()}"]],'
        '[["seed 0",[0,1]],["seed 1",[0,1]]]]\n'
    ).encode()
    root = hkdf(common, hashlib.sha256(transcript).digest(), label + b"pair")
    streams = hkdf(root, b"", label + b"streams")
    for k in (0, 1):
        info = b"noisedesign noise 1 child seed %d" % k
        wanted = hkdf(streams, bytes.fromhex(DIGEST), info)
        assert shared(nodes)[f"seed {k}"] == {wanted}
    for letter in passed:
        if letter["kind"] == "confirm":
            said = b'["tag",%d]\n' % letter["sender"] + transcript
            tag = hmac.digest(hkdf(root, b"", label + b"confirm"), said, "sha256")
            assert letter["tag"] == tag.hex()
            if signed:
                said = label + b'["signature",%d]\n' % letter["sender"] + transcript
                signer = Ed25519PublicKey.from_public_bytes(known[letter["sender"]])
                signer.verify(bytes.fromhex(letter["signature"]), said)
        else:
            assert letter["key"] == public[letter["sender"]].hex()


# --- what differs is noticed ----------------------------------------------------------------------


def test_nodes_of_two_designs_do_not_agree() -> None:
    nodes = {0: Agreement(plans(((0, 1),))[0]), 1: Agreement(plans(((0, 1),), digest="aa" * 32)[1])}
    with pytest.raises(InputError, match="expected node 0 to have the design aaaaaaaaaaaa, got 5e"):
        deliver(nodes)


def flipped(digits: str) -> str:
    """With one bit of the last byte changed."""
    return digits[:-1] + "0123456789abcdef"[int(digits[-1], 16) ^ 1]


ALTERED = [
    (False, "hello", "key"),
    (True, "hello", "key"),
    (False, "confirm", "tag"),
    (True, "confirm", "tag"),
    (True, "confirm", "signature"),
    (True, "hello", "identity"),
    (False, "seed", "sealed"),
    (False, "tag", "tag"),
]


@pytest.mark.parametrize(("signed", "kind", "name"), ALTERED)
@pytest.mark.parametrize("which", range(2))
def test_one_bit_on_the_way_is_noticed(signed: bool, kind: str, name: str, which: int) -> None:
    nodes, met = agreements(plans(MIXED), signed=signed), itertools.count()

    def change(letter: Letter) -> Letter:
        if letter["kind"] == kind and next(met) == which:
            letter[name] = flipped(letter[name])
        return letter

    with pytest.raises(InputError, match="^agreement: .* Draw no noise|^agreement: .*identity"):
        deliver(nodes, change)
    assert not all(agreement.finished for agreement in nodes.values())


def test_the_digest_is_in_the_transcript_and_not_only_in_the_message() -> None:
    """Who alters the digest of the messages as they pass changes no key."""
    of = {0: plans(((0, 1),))[0], 1: plans(((0, 1),), digest="aa" * 32)[1]}

    def change(letter: Letter) -> Letter:
        return letter | {"digest": of[letter["receiver"]].digest}

    with pytest.raises(InputError, match="node 0 to have the same key, got another"):
        deliver({u: Agreement(plan) for u, plan in of.items()}, change)


def test_node_numbers_are_in_the_transcript() -> None:
    """Node 2 in the place of node 1: the messages say so, the keys do not agree."""
    of = plans(TRIANGLE)
    first, third = Agreement(of[0]), Agreement(of[2])
    as_second = {"sender": 1}

    def said(letters: list[tuple[int, bytes]], to: int, **change: int) -> bytes:
        (message,) = (message for receiver, message in letters if receiver == to)
        return json.dumps(json.loads(message) | change).encode()

    first_hello = said(first.start(), 1, receiver=2)
    answer = third.take(first_hello)
    first.take(said(third.start(), 0, **as_second))
    with pytest.raises(InputError, match="node 1 to have the same key"):
        first.take(said(answer, 0, **as_second))


def test_a_plan_with_other_streams_is_noticed_though_it_has_the_digest() -> None:
    of, others = plans(((0, 1), (0, 1))), plans(((0, 1),))
    with pytest.raises(InputError, match="the same key"):
        deliver({0: Agreement(of[0]), 1: Agreement(others[1])})


LOW_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
    P,
    P + 1,
]
"""All u of low order, and those that are them again beyond p (Langley, Hamburg and Turner 2016)."""


@pytest.mark.parametrize("point", LOW_ORDER)
def test_points_of_low_order_are_refused(point: int) -> None:
    """With these the secret is zero whatever our key is."""
    assert not any(x25519(bytes(range(32)), point.to_bytes(32, "little")))
    nodes = agreements(plans(((0, 1),)))

    def change(letter: Letter) -> Letter:
        return letter | {"key": point.to_bytes(32, "little").hex()}

    with pytest.raises(InputError, match="one of low order from node 0"):
        deliver(nodes, change)


def test_what_a_node_sent_is_not_taken_as_an_answer() -> None:
    first, second = agreements(plans(((0, 1),))).values()
    (_, hello), (_, other) = first.start()[0], second.start()[0]
    mirrored = json.loads(hello) | {"sender": 1, "receiver": 0}
    with pytest.raises(InputError, match="our own from node 1"):
        first.take(json.dumps(mirrored).encode())
    (_, confirmation) = first.take(other)[0]
    mirrored = json.loads(confirmation) | {"sender": 1, "receiver": 0}
    with pytest.raises(InputError, match="the same key"):
        first.take(json.dumps(mirrored).encode())


def test_a_message_again_changes_nothing_and_another_key_is_refused() -> None:
    of = plans(MIXED)
    first, second = agreements(of)[0], Agreement(of[1])
    hello = dict(second.start())[0]
    assert first.take(hello)
    assert first.take(hello) == []
    with pytest.raises(InputError, match="one key of node 1 a run, got another"):
        first.take(dict(Agreement(of[1]).start())[0])


def test_messages_of_an_agreement_before_are_of_no_use() -> None:
    """All that node 1 ever said, again: its keys are known to nobody any more."""
    of = plans(((0, 1),))
    before = agreements(of, signed=True)
    said = [m for m in map(json.loads, deliver(before)) if m["sender"] == 1]
    now = agreements(of, signed=True)[0]
    hello, confirmation = (json.dumps(message).encode() for message in said)
    now.take(hello)
    with pytest.raises(InputError, match="node 1 to have the same key, got another"):
        now.take(confirmation)


def test_a_lead_that_gives_two_seeds_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = agreements(plans(((0, 1, 2),)))
    given = iter([Secret(bytes(range(32))), Secret(bytes(range(1, 33)))])
    circle = nodes[0]._groups[0, 1, 2]

    def change(letter: Letter) -> Letter:
        if letter["kind"] == "confirm" and letter["receiver"] == 0:
            circle.secret = next(given)
        return letter

    with pytest.raises(InputError, match=r"nodes 0 and [12] to have the same seed of the group"):
        deliver(nodes, change)


@pytest.mark.parametrize("groups", [((0, 1, 2),), ((0, 1, 2, 3),)])
@pytest.mark.parametrize("order", range(12))
def test_no_member_agrees_with_another_seed_in_any_order_of_delivery(
    order: int, groups: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lead gives the last member a seed of its own. Members who refuse a message go on, so that
    each is seen to notice by itself, whether the tags of the others or the seed come first."""
    said: list[str] = []
    nodes = agreements(plans(groups))
    circle = nodes[0]._groups[groups[0]]
    seeds = [Secret(bytes(range(32))), Secret(bytes(range(1, 33)))]

    def change(letter: Letter) -> Letter:
        if letter["kind"] == "confirm" and letter["receiver"] == 0:
            circle.secret = seeds[letter["sender"] == groups[0][-1]]
        return letter

    def deaf(take: Callable[[bytes], list[tuple[int, bytes]]]) -> Callable[[bytes], Any]:
        def taken(message: bytes) -> list[tuple[int, bytes]]:
            try:
                return take(message)
            except InputError as error:
                said.append(str(error))
                return []

        return taken

    for agreement in nodes.values():
        monkeypatch.setattr(agreement, "take", deaf(agreement.take))
    deliver(nodes, change, order=np.random.default_rng(order))
    assert said
    assert all("to have the same seed of the group" in error for error in said)
    assert not any(nodes[u].finished for u in groups[0][1:])


@pytest.mark.parametrize("signed", [False, True])
def test_no_seed_before_the_lead_has_confirmed(signed: bool) -> None:
    """Who replaced the lead's key could seal as well as it; the confirmation is what it cannot."""
    nodes = agreements(plans(((0, 1, 2),)), signed=signed)

    def change(letter: Letter) -> Letter | None:
        lost = letter["kind"] == "confirm" and (letter["sender"], letter["receiver"]) == (0, 1)
        return None if lost else letter

    with pytest.raises(InputError, match="message: expected the confirmation of node 0 first"):
        deliver(nodes, change)
    assert nodes[1]._groups[0, 1, 2].secret is None


@pytest.mark.parametrize("order", range(6))
def test_who_is_not_in_a_group_has_no_say_in_it(order: int) -> None:
    """Node 3 shares other seeds with node 2: what it says of 0, 1 and 2 stops no agreement."""
    nodes = agreements(plans(MIXED))

    def change(letter: Letter) -> Letter:
        if letter["kind"] == "tag" and (letter["sender"], letter["receiver"]) == (3, 2):
            return letter | {"group": [0, 1, 2]}
        return letter

    with pytest.raises(InputError, match="message: expected a group of nodes 2 and 3, got"):
        deliver(nodes, change, order=np.random.default_rng(order))


def test_a_lead_that_passes_messages_on_cannot_speak_for_others() -> None:
    """It gives two members different seeds, and puts in place of each one's tag what that one would
    say of the seed of the other, as far as it knows: all but the key of the two."""
    nodes = agreements(plans(((0, 1, 2),)))
    seeds = {1: Secret(bytes(range(32))), 2: Secret(bytes(range(1, 33)))}
    circle = nodes[0]._groups[0, 1, 2]

    def change(letter: Letter) -> Letter:
        if letter["kind"] == "confirm" and letter["receiver"] == 0:
            circle.secret = seeds[letter["sender"]]
        if letter["kind"] == "tag" and letter["receiver"] != 0:
            sender, receiver = letter["sender"], letter["receiver"]
            tag = circle.tag(seeds[receiver], sender, nodes[0]._pairs[receiver])
            return letter | {"tag": tag.hex()}
        return letter

    with pytest.raises(InputError, match="nodes 0 and [12] to have the same seed of the group"):
        deliver(nodes, change)


def test_only_the_lead_gives_a_seed() -> None:
    nodes = agreements(plans(((0, 1, 2),)))

    def change(letter: Letter) -> Letter:
        if letter["kind"] == "tag" and letter["receiver"] == 1:
            return letter | {"kind": "seed", "sealed": "00" * 48}
        return letter

    with pytest.raises(InputError, match=r"nodes \[0, 1, 2\] from node 0, got one from node 2"):
        deliver(nodes, change)


@pytest.mark.parametrize(
    ("kind", "silent"), [("hello", 0), ("confirm", 0), ("seed", 0), ("tag", 1), ("confirm", 2)]
)
def test_no_secret_before_everybody_confirmed(kind: str, silent: int) -> None:
    """A node that falls silent at some message: the others know whom they wait for."""
    nodes = agreements(plans(((0, 1, 2),)))
    gone: set[int] = set()

    def change(letter: Letter) -> Letter | None:
        if letter["kind"] == kind and letter["sender"] == silent:
            gone.add(silent)
        return None if letter["sender"] in gone else letter

    deliver(nodes, change)
    for u in {0, 1, 2} - {silent}:
        assert silent in nodes[u].waiting
        assert not nodes[u].finished
        with pytest.raises(InputError, match=rf"nodes {nodes[u].peers[0]}, .*none of.* {silent}"):
            nodes[u].secrets()


def test_messages_hold_no_secret() -> None:
    nodes = agreements(plans(MIXED), signed=True)
    keys = [agreement._private.private_bytes_raw() for agreement in nodes.values()]  # type: ignore[union-attr]
    passed = b"".join(deliver(nodes))
    hidden = [*keys, *(value for values in shared(nodes).values() for value in values)]
    hidden += [c.secret.value for a in nodes.values() for c in a._groups.values() if c.secret]
    hidden += [pair.root for a in nodes.values() for pair in a._pairs.values()]
    assert len(hidden) > 20
    assert not any(value.hex().encode() in passed for value in hidden)
    assert all(agreement._private is None for agreement in nodes.values())
    assert "root" not in repr(nodes[0]._pairs[1])


# --- who is who -----------------------------------------------------------------------------------


def between(signed: bool) -> tuple[dict[int, Agreement], Agreements]:
    """Nodes 0 and 1, and an attacker who is 1 towards 0, and 0 towards 1."""
    of = plans(((0, 1),))
    attacker: dict[int, Agreement] = {}
    nodes = agreements(of, signed=signed)
    for u in (0, 1):
        known = {0: nodes[0], 1: nodes[1]}[1 - u].identity
        mine = None if known is None else Identity.new()
        others = None if known is None else {1 - u: known.public}
        attacker[u] = Agreement(of[u], identity=mine, identities=others)
        if mine is not None and known is not None:
            object.__setattr__(mine, "public", nodes[u].identity.public)  # type: ignore[union-attr]
    for u in (0, 1):
        letters = [(u, m) for _, m in attacker[1 - u].start()]
        answers = [(1 - u, m) for _, m in nodes[u].start()]
        while letters or answers:
            replies = [reply for _, m in letters for reply in nodes[u].take(m)]
            answered = [reply for _, m in answers for reply in attacker[1 - u].take(m)]
            answers, letters = replies, answered
    return nodes, attacker


def test_without_identities_an_attacker_between_two_agrees_with_both() -> None:
    """As the documentation says: a test of what is not promised."""
    nodes, attacker = between(signed=False)
    secrets = [nodes[u].secrets()["seed 0"].value for u in (0, 1)]
    assert secrets[0] != secrets[1]
    assert [attacker[1 - u].secrets()["seed 0"].value for u in (0, 1)] == secrets


def test_with_identities_the_attacker_is_noticed() -> None:
    """Who knows the public parts only, and shows them, cannot sign."""
    with pytest.raises(InputError, match="the signature of node 1, got one of somebody else"):
        between(signed=True)


def test_one_node_has_no_identity() -> None:
    of = plans(((0, 1),))
    signed = agreements(of, signed=True)
    with pytest.raises(InputError, match="identities: expected the identity of node 0, which has"):
        deliver({0: signed[0], 1: Agreement(of[1])})
    with pytest.raises(InputError, match="expected node 0 to have the identity .*, got none"):
        deliver({0: Agreement(of[0]), 1: signed[1]})


def test_identities_of_all_peers_or_of_none() -> None:
    plan = plans(TRIANGLE)[0]
    known = {1: Identity.new().public}
    with pytest.raises(InputError, match="every peer: 1, 2, got none of 2"):
        Agreement(plan, identity=Identity.new(), identities=known)
    with pytest.raises(InputError, match="^identity: expected this node's own"):
        Agreement(plan, identities=known)
    with pytest.raises(InputError, match="^identities: .*got none of 1, 2"):
        Agreement(plan, identity=Identity.new())
    with pytest.raises(InputError, match="32 bytes of node 2"):
        Agreement(plan, identity=Identity.new(), identities=known | {2: b"short"})


def test_identities_are_kept_in_files(tmp_path: Path) -> None:
    identity = Identity.new()
    identity.save(tmp_path / "identity")
    assert Identity.load(tmp_path / "identity").public == identity.public
    assert Identity.new().public != identity.public
    assert identity.secret.value.hex() not in repr(identity)


# --- bad input ------------------------------------------------------------------------------------


def hello(**change: Any) -> bytes:
    first, _ = agreements(plans(((0, 1),))).values()
    return json.dumps(json.loads(first.start()[0][1]) | change).encode()


BAD = [
    (b"", "message"),
    (b"\xff\xfe", "message"),
    (b"[]", "message"),
    (b"[" * 100_000, "message"),
    (b"1" * 5000, "message"),
    (b"{" + b" " * (1 << 20) + b"}", "message"),
    ("text", "message"),
    (hello(version=2), "message"),
    (hello(format="other"), "message"),
    (hello(kind="goodbye"), "message.kind"),
    (hello(kind="confirm"), "message"),
    (hello(kind="seed", group=[0, 1, 2]), "message"),
    (hello(sender="0"), "message.sender"),
    (hello(sender=2), "message"),
    (hello(sender=True), "message.sender"),
    (hello(receiver=2), "message"),
    (hello(group=7), "message"),
    (hello(group=[[1]]), "message.group"),
    (hello(digest=None), "message.digest"),
    (hello(key=None), "message"),
    (hello(key="00"), "message"),
    (hello(key="x" * 64), "message"),
]


@pytest.mark.parametrize(("message", "field"), BAD)
def test_what_is_no_message_changes_nothing(message: Any, field: str) -> None:
    nodes = agreements(plans(((0, 1),)))
    with pytest.raises(InputError) as refused:
        nodes[1].take(message)
    assert refused.value.field == field
    deliver(nodes)
    assert len(shared(nodes)["seed 0"]) == 1


@pytest.mark.parametrize("holders", [(), (0,), (1, 2), (0, 0), (0, 1, 1)])
def test_a_plan_whose_streams_have_no_holders(holders: tuple[int, ...]) -> None:
    plan = plans(((0, 1),))[0]
    streams = tuple(replace(stream, holders=holders) for stream in plan.streams)
    with pytest.raises(InputError, match="^plan: expected node 0 and others to hold"):
        Agreement(replace(plan, streams=streams))


# --- by a dealer ----------------------------------------------------------------------------------


def test_a_dealer_gives_every_node_what_it_holds() -> None:
    of, secret = plans(MIXED), Secret(bytes(range(32)))
    dealt = deal(of.values(), secret)
    for u, plan in of.items():
        assert set(dealt[u]) == {stream.name for stream in plan.streams}
        for name, found in dealt[u].items():
            info = b"noisedesign noise 1 child " + name.encode()
            assert found.value == hkdf(secret.value, bytes.fromhex(DIGEST), info)
    with pytest.raises(InputError, match="^plans: expected those of one design"):
        deal([of[0], plans(MIXED, digest="aa" * 32)[1]], secret)
    with pytest.raises(InputError, match="one of every node, got two of node 0"):
        deal([of[0], of[0]], secret)


def test_dealt_noise_by_the_dealers_secret_and_by_its_seeds() -> None:
    """A node that takes no part in a draw needs no seed of it."""
    secret = Secret(bytes(range(32)))
    root = np.array([[1.0, 0.0], [-0.5, 2.0]])
    of = [
        Plan(
            digest=DIGEST,
            node=u,
            nodes=2,
            horizon=3,
            claim=Claim(noise_stddev=1.0),
            streams=tuple(
                Stream(name=f"draw {k}", coefficient=root[u, k], source="dealt", holders=(0, 1))
                for k in np.flatnonzero(root[u])
            ),
        )
        for u in (0, 1)
    ]
    dealt = deal(of, secret)
    assert [sorted(seeds) for seeds in dealt.values()] == [["draw 0"], ["draw 0", "draw 1"]]
    whole, drawn = (
        [noise(of[u], record=False, **how).step(1, 100) for u, how in enumerate(given)]
        for given in ([{"secret": secret}] * 2, [{"seeds": dealt[u]} for u in (0, 1)])
    )
    for u in (0, 1):
        assert np.array_equal(whole[u], drawn[u])
    assert np.corrcoef(whole[0], whole[1])[0, 1] < 0
    with pytest.raises(InputError, match="^secret: expected the dealer's"):
        noise(of[0], record=False)
