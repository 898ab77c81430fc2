"""The transcript of a node, checked by somebody who gets its secrets later: whether every message
is what the certified design draws. It is said what cannot be checked with what is given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.file_kinds import NODE_PLAN, kind_of
from noisedesign.base.nodes import Row
from noisedesign.design.design import design_of
from noisedesign.files.design_file import load_design
from noisedesign.noise.batches import Batches, RandomBatches, expected_size
from noisedesign.noise.keys import Secret
from noisedesign.noise.node.links import public_of
from noisedesign.noise.node.training import BATCH_SECRET, SECRET, Examples, secrets_in
from noisedesign.noise.node.transcript import (
    FORMAT,
    KEY,
    LABEL,
    NUMBERS,
    VERSION,
    Keyed,
    digest_of,
    read_lines,
)
from noisedesign.noise.plan import SHARED, Plan
from noisedesign.noise.source import OVER_CLIP, NodeNoise, noise

HELD, DIFFERS, OPEN = "held", "differs", "not checked"
REDONE = ("messages", "secrets", "data", "batches", "noise")  # checks that compute a step again
ROUNDING = 1e-9
"""The distance of a noisy sum computed again, in its largest number and 1: another machine sums the
gradients of a batch in another order, and noise itself has the same bits everywhere."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question about a run: ``held``, ``differs`` or ``not checked``; why, in words; and the
    steps at which it differs."""

    check: str
    result: str
    why: str = ""
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Audited:
    """The answers to what can be asked of the transcript of one node.

    Attributes:
        node: its row.
        name: its name.
        steps: how many steps it attests.
        checks: each question, and its answer.
        verdicts: of every step, ``held`` where its message is its model less the noisy sum that the
            certified design draws from these secrets on these data, ``differs``, or ``not
            checked``. Whether the model is the average of messages is the check ``mixing``.
    """

    node: int
    name: str
    steps: int
    checks: tuple[Check, ...]
    verdicts: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing differs; some of it may not have been checked."""
        return all(one.result != DIFFERS for one in self.checks)

    @property
    def outcome(self) -> str:
        """One sentence."""
        counts = {word: self.verdicts.count(word) for word in (HELD, DIFFERS, OPEN)}
        if not self.holds:
            odd = [t for t, word in enumerate(self.verdicts) if word == DIFFERS]
            where = f" {len(odd)} of {self.steps} steps, the first {odd[0]}" if odd else ""
            return f"Node {self.name} did not do what it attests:{where or ' ' + self._odd}."
        if counts[OPEN]:
            return f"Node {self.name}: nothing differs, and not all was checked."
        if any(one.check == "mixing" and one.result == OPEN for one in self.checks):
            return (
                f"Node {self.name}: all {self.steps} noisy sums are what the design draws; "
                "not all models were checked."
            )
        return f"Node {self.name}: all {self.steps} messages are what the design draws."

    @property
    def _odd(self) -> str:
        return next(one.check for one in self.checks if one.result == DIFFERS)


@dataclass
class _Chain:
    """A transcript as it was read, and where it breaks."""

    head: Mapping[str, Any]
    entries: list[Mapping[str, Any]]
    broken: list[int] = field(default_factory=list)  # lines that do not follow the one before
    forged: list[int] = field(default_factory=list)  # lines whose signature is of somebody else
    signed: bool = True

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        return [entry for entry in self.entries if "step" in entry]

    @property
    def end(self) -> Mapping[str, Any] | None:
        return next((entry for entry in self.entries if "end" in entry), None)


def read_transcript(path: str | Path) -> _Chain:
    """Read the lines that a node wrote; where they do not follow one another is noted."""
    file = _checks.path(path, field="transcript")
    found: _Chain | None = None
    key: Ed25519PublicKey | None = None
    before = ""
    try:
        for number, line in enumerate(read_lines(file)):
            outer = json.loads(line)
            said, signature = str(outer["entry"]), bytes.fromhex(outer["signature"])
            entry = json.loads(said)
            if found is None:
                found = _Chain(entry, [])
                _checks_head(entry)
                if entry["identity"] is not None:
                    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(entry["identity"]))
                found.signed = key is not None
            else:
                found.entries.append(entry)
            if entry["before"] != before:
                found.broken.append(number)
            if key is not None and not _signed(key, said, signature):
                found.forged.append(number)
            before = hashlib.sha256(line).hexdigest()
    except OSError as error:
        got = error.strerror or str(error)
        raise InputError("transcript", expected=f"a file {file}", got=got) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        got = f"{type(error).__name__}: {error}"
        raise InputError("transcript", expected=f"lines of a node in {file}", got=got) from None
    if found is None:
        raise InputError("transcript", expected=f"lines of a node in {file}", got="none")
    return found


def _checks_head(head: Mapping[str, Any]) -> None:
    if head.get("format") != FORMAT or head.get("version") != VERSION:
        got = _checks.describe([head.get("format"), head.get("version")])
        raise InputError("transcript", expected=f"{FORMAT}, version {VERSION}", got=got)
    for name in ("records", "dimension"):
        _checks.positive_int(head[name], field=f"transcript.{name}")
    _checks.real(head["step_size"], field="transcript.step_size", low=0)


def _signed(key: Ed25519PublicKey, said: str, signature: bytes) -> bool:
    try:
        key.verify(signature, LABEL + said.encode())
    except InvalidSignature:
        return False
    return True


def source_of(plan: Plan, secrets: Mapping[str, Secret]) -> NodeNoise:
    """The noise of a node once more, from its secrets, unrecorded: nothing is hidden by it."""
    seeds = {s.name: secrets[s.name] for s in plan.streams if s.source == SHARED}
    return noise(
        plan,
        secret=secrets.get(SECRET),
        seeds=seeds,
        batch_size=plan.claim.batch_size,
        record=False,
        batch_secret=secrets.get(BATCH_SECRET),
    )


def batches_of(
    plan: Plan, source: NodeNoise | None, records: int
) -> Batches | RandomBatches | None:
    """Who took part when; None where that is drawn and the secret is not known."""
    rule = plan.claim.rule
    assert rule is not None
    if rule.random is None:
        return Batches(rule, horizon=plan.horizon, records=records)
    return None if source is None else source.batches(records)


def plan_in(path: str | Path, transcript: str | Path) -> Plan:
    """The plan of a node's file; of a design that of the node that wrote the transcript."""
    file = _checks.path(path, field="plan")
    if not file.exists() or kind_of(file) == NODE_PLAN:
        return Plan.load(file)
    node = read_transcript(transcript).head["node"]
    return design_of(load_design(file)).node_plan(Row(node))


def audit(
    transcript: str | Path,
    *,
    plan: Plan,
    secrets: str | Path | None = None,
    data: str | Path | None = None,
    certificate: str | Path | None = None,
    neighbours: Sequence[str | Path] = (),
) -> Audited:
    """Check what a node attested.

    Args:
        transcript: its file; the numbers ``transcript.f8`` are looked for beside it.
        plan: of the node, of a design that was verified.
        secrets: folder of its secrets, as its own folder has them; None: they are not known.
        data: its examples, .npz of ``features`` and ``labels``.
        certificate: by which others know it; None: the identity that the transcript names.
        neighbours: their transcripts, with their numbers beside them.

    Returns:
        The checks and their results.

    Raises:
        InputError: a file that cannot be read.
    """
    try:
        return _audited(transcript, plan, secrets, data, certificate, neighbours)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        expected, got = "entries as a node writes them", f"{type(error).__name__}: {error}"
        raise InputError("transcript", expected=expected, got=got) from None


def _audited(
    transcript: str | Path,
    plan: Plan,
    secrets: str | Path | None,
    data: str | Path | None,
    certificate: str | Path | None,
    neighbours: Sequence[str | Path],
) -> Audited:
    chain, file = read_transcript(transcript), _checks.path(transcript, field="transcript")
    known = None if secrets is None else secrets_in(_folder(secrets), plan)
    shown = None if data is None else Examples.load(data)
    numbers = _Numbers.beside(file, chain)
    found = _Auditor(plan, chain, numbers, known, shown)
    checks = [found.chain(), found.signature(certificate), found.plan_(), found.order()]
    if all(one.result == HELD for one in (checks[0], checks[2], checks[3])):
        checks += [found.numbers(), found.secrets(), found.data(), found.batches(), found.noise()]
        checks.append(found.mixing([_checks.path(one, field="neighbours") for one in neighbours]))
    else:
        why = "the chain, the plan or the order of steps differs: nothing else can be told"
        checks += [Check(check=name, result=OPEN, why=why) for name in (*REDONE, "mixing")]
    return Audited(
        node=plan.node,
        name=plan.name or str(plan.node),
        steps=len(chain.steps),
        checks=tuple(checks),
        verdicts=found.verdicts(checks),
    )


def _folder(path: str | Path) -> Path:
    found = _checks.path(path, field="secrets")
    if not found.is_dir():
        raise InputError("secrets", expected="a folder of a node's secrets", got=f"{found}")
    return found


class _Numbers:
    """Models and noisy sums as a node kept them, each checked by its digest."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @classmethod
    def beside(cls, transcript: Path, chain: _Chain) -> _Numbers | None:
        file, d = transcript.with_name(NUMBERS), int(chain.head["dimension"])
        if not file.exists():
            return None
        flat = np.fromfile(file, dtype="<f8")
        return cls(flat[: len(flat) // d * d].reshape(-1, d).astype(np.float64))

    def model(self, t: int) -> Array | None:
        return self._row(2 * t)

    def noisy(self, t: int) -> Array | None:
        return self._row(2 * t + 1)

    def _row(self, at: int) -> Array | None:
        return np.asarray(self._array[at]) if at < len(self._array) else None


@dataclass(frozen=True, eq=False)
class _Auditor:
    """One transcript, and all that is known beside it."""

    of: Plan
    lines: _Chain
    kept: _Numbers | None
    known: Mapping[str, Secret] | None
    examples: Examples | None

    def chain(self) -> Check:
        """Whether every line follows the one before."""
        broken = self.lines.broken
        why = f"line {broken[0] + 1} does not follow the one before" if broken else ""
        at = tuple(max(number - 1, 0) for number in broken)
        return Check(check="chain", result=DIFFERS if broken else HELD, why=why, steps=at)

    def signature(self, certificate: str | Path | None) -> Check:
        """Whether the identity of the node signed every line."""
        chain, name = self.lines, "signatures"
        if certificate is not None:
            pem = _checks.path(certificate, field="certificate")
            try:
                _, public = public_of(pem.read_bytes(), field="certificate")
            except OSError as error:
                got = error.strerror or str(error)
                raise InputError("certificate", expected=f"a file {pem}", got=got) from None
            if chain.head["identity"] != public.hex():
                why = "another identity than that of the certificate, or none"
                return Check(check=name, result=DIFFERS, why=why)
        if not chain.signed:
            why = "nobody signed: whoever had the file may have written it"
            return Check(check=name, result=OPEN, why=why)
        if chain.forged:
            why = f"line {chain.forged[0] + 1} is not signed by the node"
            at = tuple(max(number - 1, 0) for number in chain.forged)
            return Check(check=name, result=DIFFERS, why=why, steps=at)
        why = "" if certificate else f"by {chain.head['identity'][:12]}, whoever that is"
        return Check(check=name, result=HELD, why=why)

    def plan_(self) -> Check:
        """Whether the node was bound to this plan and its rule of batches."""
        head, plan = self.lines.head, self.of
        rule = (
            None if plan.claim.rule is None else json.loads(json.dumps(plan.claim.rule.to_json()))
        )
        facts = {
            "design": head["digest"] == plan.digest,
            "node": head["node"] == plan.node,
            "plan": head["plan"] == plan.checksum,
            "rule of batches": head["rule"] == rule,
        }
        wrong = [name for name, same in facts.items() if not same]
        why = f"another {', '.join(wrong)}" if wrong else f"design {plan.digest[:12]}"
        return Check(check="plan", result=DIFFERS if wrong else HELD, why=why)

    def order(self) -> Check:
        """Whether steps come one after another, with an end behind the last."""
        steps, end = [entry["step"] for entry in self.lines.steps], self.lines.end
        wrong = next((t for t, step in enumerate(steps) if step != t), None)
        if wrong is None and (len(steps) > self.of.horizon or (end and end["end"] != len(steps))):
            wrong = len(steps)
        if wrong is not None:
            why = f"line {wrong + 2} is of step {steps[wrong]}" if wrong < len(steps) else "its end"
            return Check(check="order", result=DIFFERS, why=why, steps=(wrong,))
        why = (
            "" if end else f"no end: the run stopped after {len(steps)} of {self.of.horizon} steps"
        )
        return Check(check="order", result=HELD, why=why)

    def numbers(self) -> Check:
        """Whether each message is the model less the noisy sum, bit for bit."""
        if self.kept is None:
            return Check(check="messages", result=OPEN, why=f"no {NUMBERS} beside the transcript")
        rate, wrong, zero = self._rate(self.lines), [], np.zeros(int(self.lines.head["dimension"]))
        for t, entry in enumerate(self.lines.steps):
            if not t and entry["model"] != digest_of(zero):  # it could tell of the data
                return _check("messages", [0], "the first model is not zero")
            model, noisy = self.kept.model(t), self.kept.noisy(t)
            if model is None or noisy is None:
                wrong.append(t)
                continue
            said = (entry["model"], entry["noisy"], entry["sent"])
            with np.errstate(all="ignore"):
                sent = model - rate * noisy
            if (digest_of(model), digest_of(noisy), digest_of(sent)) != said:
                wrong.append(t)
        why = f"step {wrong[0]} is not model - eta (noisy sum)" if wrong else "bit for bit"
        return _check("messages", wrong, why)

    def _rate(self, chain: _Chain) -> float:
        """Return eta over the mean number of records that a sum of this node is of."""
        head, rule, horizon = chain.head, self.of.claim.rule, self.of.horizon
        assert rule is not None
        records, divisor = int(head["records"]), self.of.claim.batch_size or 1
        if rule.random is None:
            size = Batches(rule, horizon=horizon, records=records).expected_size
        else:
            size = expected_size(rule, horizon=horizon, records=records)
        return float(head["step_size"] * divisor / size)

    def secrets(self) -> Check:
        """Whether these secrets are those that the node was bound to before it drew."""
        if self.known is None:
            return Check(check="secrets", result=OPEN, why="none were given")
        said = self.lines.head["secrets"]
        found = {name: secret.fingerprint for name, secret in self.known.items()}
        wrong = sorted(name for name in said.keys() | found if said.get(name) != found.get(name))
        why = f"another one for {', '.join(wrong)}" if wrong else f"{len(found)} fingerprints"
        return Check(check="secrets", result=DIFFERS if wrong else HELD, why=why)

    def data(self) -> Check:
        """Whether these data are those that the node was bound to."""
        if self.examples is None or self._keyed is None:
            why = "no data were given" if self.examples is None else f"no {KEY} was given"
            return Check(check="data", result=OPEN, why=why)
        head, shown = self.lines.head, self.examples
        same = head["data"] == self._keyed.data(shown.features, shown.labels)
        why = f"{len(shown.labels)} records" if same else "others than in the run"
        if same and (head["records"], head["dimension"]) != (len(shown.labels), shown.dimension):
            same, why = False, f"{head['records']} records of {head['dimension']} numbers attested"
        return Check(check="data", result=HELD if same else DIFFERS, why=why)

    @property
    def _keyed(self) -> Keyed | None:
        if self.known is None or KEY not in self.known:
            return None
        return Keyed(self.known[KEY], self.of.digest)

    @cached_property
    def _drawn(self) -> tuple[NodeNoise | None, Batches | RandomBatches | None]:
        """Noise and batches as far as they are known."""
        source = None
        if self.known is not None:
            source = source_of(self.of, self.known)
        return source, batches_of(self.of, source, int(self.lines.head["records"]))

    def batches(self) -> Check:
        """Whether the batches are those that the rule draws from the secret."""
        _, batches = self._drawn
        if batches is None or self._keyed is None:
            return Check(check="batches", result=OPEN, why="the secrets were not given")
        wrong = [
            t
            for t, entry in enumerate(self.lines.steps)
            if self._keyed.batch(t, batches[t]) != entry["batch"]
        ]
        why = f"that of step {wrong[0]} is another" if wrong else f"{self.of.claim.participation}"
        return _check("batches", wrong, why)

    def noise(self) -> Check:
        """Whether a noisy sum is the clipped sum of its batch and the noise of its step."""
        source, batches = self._drawn
        if source is None or batches is None:
            return Check(check="noise", result=OPEN, why="the secrets were not given")
        if self.kept is None:
            return Check(check="noise", result=OPEN, why=f"no {NUMBERS} beside the transcript")
        examples, d = self.examples, int(self.lines.head["dimension"])
        if examples is not None and examples.dimension != d:
            examples = None
        clip, divisor, wrong = self.of.claim.clip, self.of.claim.batch_size or 1, []
        assert clip is not None
        for t in range(len(self.lines.steps)):
            model, noisy = self.kept.model(t), self.kept.noisy(t)
            if model is None or noisy is None or not np.isfinite([*model, *noisy]).all():
                wrong.append(t)
                continue
            left = noisy - source.step(t, d) / divisor
            if examples is None:
                most = clip * len(batches[t]) / divisor * (1 + OVER_CLIP)
                right = float(np.linalg.norm(left)) <= most + ROUNDING
            else:
                left -= examples.clipped_sum(model, batches[t], clip=clip) / divisor
                right = float(np.abs(left).max()) <= ROUNDING * (1 + float(np.abs(noisy).max()))
            if not right:
                wrong.append(t)
        if wrong:
            why = f"step {wrong[0]} has not the noise of the design on a sum of its batch"
        elif examples is None:
            why = "without data: what is left is no more than the clip allows its batch"
        else:
            why = "the sums of these data, with the noise of the design"
        return _check("noise", wrong, why)

    def mixing(self, files: Sequence[Path]) -> Check:
        """Whether what was heard is what neighbours say they sent, and was averaged by W."""
        wanted = [v for v, _ in self.of.weights if v != self.of.node]
        if not files:
            return Check(check="mixing", result=OPEN, why="no transcript of a neighbour was given")
        sent, messages, odd = {}, {}, []
        heard_of: dict[int, dict[int, list[dict[str, str]]]] = {}
        for file in files:
            other = read_transcript(file)
            node = int(other.head["node"])
            if other.head["digest"] != self.of.digest or other.broken or other.forged:
                odd.append(node)
                continue
            sent[node], heard_of[node] = _sent_by(other), dict(_heard_by(other))
            messages[node] = _messages_of(other, _Numbers.beside(file, other), self._rate(other))
        if odd:
            why = f"the transcript of node {odd[0]} is of another design, or forged"
            return Check(check="mixing", result=DIFFERS, why=why)
        heard, own, here = dict(_heard_by(self.lines)), _sent_by(self.lines), str(self.of.node)
        # What was heard here and sent there, and the other way round: nobody sends two messages.
        pairs = [
            (t, digest, sent[int(v)].get((t, k)))
            for t, rounds in heard.items()
            for k, said in enumerate(rounds)
            for v, digest in said.items()
            if int(v) in sent
        ] + [
            (t, said[here], own.get((t, k)))
            for there in heard_of.values()
            for t, rounds in there.items()
            for k, said in enumerate(rounds)
            if here in said
        ]
        wrong = {t for t, one, other in pairs if other not in (None, one)}
        unknown = {t for t, _, other in pairs if other is None}
        missing = [v for v in wanted if v not in sent]
        averaged = not missing and self.of.rounds == 1 and self.kept is not None
        if averaged:
            for t, same in self._averaged(heard, messages):
                (unknown if same is None else wrong if not same else set()).add(t)
        if wrong:
            why = f"what was heard in step {min(wrong)} was not sent, or not averaged"
            return _check("mixing", sorted(wrong), why)
        why = f"heard from {len(sent)} of {len(wanted)} neighbours what they sent"
        why += ", averaged bit for bit" if averaged else "; the averages were not checked"
        why += f", but not known of step {min(unknown)}" if unknown else ""
        absent = {v for v in wanted for said in heard.values() if str(v) not in said[0]}
        why += f"; at times without node {', '.join(map(str, sorted(absent)))}" if absent else ""
        return Check(check="mixing", result=HELD if averaged and not unknown else OPEN, why=why)

    def _averaged(
        self, heard: Mapping[int, list[dict[str, str]]], messages: Mapping[int, Any]
    ) -> Iterator[tuple[int, bool | None]]:
        """Steps, and whether the model after it is the average of what was heard; None where
        numbers are missing."""
        assert self.kept is not None
        messages = dict(messages)
        messages[self.of.node] = _messages_of(self.lines, self.kept, self._rate(self.lines))
        digests = [entry["model"] for entry in self.lines.steps[1:]]
        if self.lines.end is not None:
            digests.append(self.lines.end["model"])
        for t, digest in enumerate(digests):
            own, said = messages[self.of.node](t), heard[t][0]
            total: Array | None = None if own is None else np.zeros_like(own)
            for v, weight in self.of.weights:
                one = messages[v](t) if str(v) in said else own
                total = None if one is None or total is None else total + weight * one
            yield t, None if total is None else digest_of(total) == digest

    def verdicts(self, checks: Iterable[Check]) -> tuple[str, ...]:
        """Say of every step whether its message is what the design draws."""
        checks = list(checks)
        whole = any(one.result == DIFFERS and not one.steps for one in checks)
        wrong = {t for one in checks for t in one.steps}
        last = min((one.steps[0] for one in checks[:4] if one.steps), default=len(self.lines.steps))
        done = {one.check for one in checks if one.result != OPEN}

        def verdict(t: int) -> str:
            if whole or t in wrong or t >= last:  # after a line that was changed nothing is sure
                return DIFFERS
            return HELD if done >= {*REDONE} else OPEN

        return tuple(verdict(t) for t in range(len(self.lines.steps)))


def _check(name: str, wrong: Sequence[int], why: str) -> Check:
    return Check(check=name, result=DIFFERS if wrong else HELD, why=why, steps=tuple(wrong))


def _heard_by(chain: _Chain) -> Iterator[tuple[int, list[dict[str, str]]]]:
    """Yield what was heard in every step, which the line after it says."""
    for entry in chain.entries:
        t = entry.get("step", entry.get("end"))
        if t:
            yield t - 1, entry["heard"]


def _sent_by(chain: _Chain) -> dict[tuple[int, int], str]:
    """Digests of messages by step and gossip round: those of later rounds are heard by itself."""
    found = {(entry["step"], 0): entry["sent"] for entry in chain.steps}
    own = str(chain.head["node"])
    for t, rounds in _heard_by(chain):
        found |= {(t, k): said[own] for k, said in enumerate(rounds) if k}
    return found


def _messages_of(
    chain: _Chain, numbers: _Numbers | None, rate: float
) -> Callable[[int], Array | None]:
    """The first message of every step, where its numbers are known and are those of the digest."""
    digests = {entry["step"]: entry["sent"] for entry in chain.steps}

    def message(t: int) -> Array | None:
        if numbers is None or t not in digests:
            return None
        model, noisy = numbers.model(t), numbers.noisy(t)
        if model is None or noisy is None:
            return None
        sent = np.asarray(model - rate * noisy)
        return sent if digest_of(sent) == digests[t] else None

    return message
