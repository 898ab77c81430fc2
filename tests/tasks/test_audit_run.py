"""Transcripts of nodes that did as designed, and of nodes that did not and hide it as well as they
can: whoever has the identity signs whatever it likes."""

import hashlib
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.noise import Identity, NodeNoise, Plan, Secret, noise
from noisedesign.noise.node.exchange import Board, Server
from noisedesign.noise.node.links import Links, certificate, public_of
from noisedesign.noise.node.training import Examples, Run
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem
from noisedesign.system.participation import BallsInBins
from noisedesign.tasks.audit_run import DIFFERS, HELD, OPEN, Audited, audit, plan_in
from tests.support import private_problems

ETA, RECORDS, CLIP = 0.7, 12, 0.5
Entry = dict[str, Any]


def examples(u: int) -> Examples:
    generator = np.random.default_rng(u)
    features = np.hstack([generator.standard_normal((RECORDS, 2)), np.ones((RECORDS, 1))])
    return Examples(features, (np.arange(RECORDS) % (u + 2) == 0).astype(float))


@pytest.fixture(scope="module")
def design() -> Design:
    base = private_problems.path_of_seeds()
    problem = SpaceProblem(
        mixing=base.mixing,
        structure=base.structure,
        participation=BallsInBins(epochs=2, separation=3),
        privacy=PrivacyTarget(epsilon=2.0, delta=1e-5, clip=CLIP),
    )
    found = solve(problem).design
    assert found is not None
    return found


@pytest.fixture(scope="module")
def finished(design: Design, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three nodes that trained, over TLS."""
    folder = tmp_path_factory.mktemp("run")
    people = {u: Identity(Secret(bytes(range(40 * u, 40 * u + 32)))) for u in range(3)}
    read = {u: public_of(certificate(one), field="x") for u, one in people.items()}
    plans = [design.node_plan(u) for u in range(3)]
    boards = [Board(digest=p.digest, node=p.node, horizon=p.horizon) for p in plans]
    links = [
        Links(
            people[u],
            {v: read[v][0] for v in plans[u].others},
            {v: read[v][1] for v in plans[u].others},
        )
        for u in range(3)
    ]
    servers = [
        Server(board, links=link).__enter__() for board, link in zip(boards, links, strict=True)
    ]
    addresses = {u: server.address for u, server in enumerate(servers)}

    def one(u: int) -> None:
        at = folder / str(u)
        at.mkdir()
        part = examples(u)
        np.savez(at / "data.npz", features=part.features[:, :-1], labels=part.labels)
        people[u].save(at / "identity")
        (at / "certificate.pem").write_bytes(certificate(people[u]))
        run = Run(
            plan=plans[u], examples=part, folder=at, step_size=ETA, seconds=30, links=links[u]
        )
        run.train(lambda: addresses, boards[u])

    threads = [threading.Thread(target=one, args=(u,)) for u in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in servers:
        server.__exit__()
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


MIDDLE = 1  # the node that is looked at: it has two neighbours


def audited(run: Path, design: Design, *, node: int = MIDDLE, **other: Any) -> Audited:
    at, others = run / str(node), [u for u in range(3) if abs(u - node) == 1]
    given = {
        "plan": design.node_plan(node),
        "secrets": at,
        "data": at / "data.npz",
        "certificate": at / "certificate.pem",
        "neighbours": [run / str(v) / "transcript.jsonl" for v in others],
    }
    return audit(at / "transcript.jsonl", **given | other)


def results(found: Audited) -> dict[str, str]:
    return {one.check: one.result for one in found.checks}


def source(run: Path, plan: Plan) -> NodeNoise:
    at = run / str(plan.node)
    seeds = {p.name: Secret.load(p) for p in (at / "seeds").iterdir()}
    return noise(plan, secret=at / "secret", seeds=seeds, record=False)


class Forger:
    """The transcript of a node, changed and made whole again: chained and signed by the node."""

    def __init__(self, run: Path, node: int = MIDDLE) -> None:
        at = run / str(node)
        self.file, self.numbers_file = at / "transcript.jsonl", at / "transcript.f8"
        lines = self.file.read_bytes().splitlines()
        self.entries: list[Entry] = [json.loads(json.loads(line)["entry"]) for line in lines]
        self.numbers = np.fromfile(self.numbers_file, dtype="<f8").reshape(-1, 3)
        self.identity = Identity.load(at / "identity")

    def write(self) -> None:
        before, out = "", b""
        for entry in self.entries:
            said = json.dumps(entry | {"before": before}, sort_keys=True, separators=(",", ":"))
            signature = self.identity.sign(b"noisedesign transcript 1 " + said.encode()).hex()
            line = json.dumps({"entry": said, "signature": signature}).encode() + b"\n"
            before, out = hashlib.sha256(line).hexdigest(), out + line
        self.file.write_bytes(out)
        self.numbers_file.write_bytes(self.numbers.astype("<f8").tobytes())

    def send(self, t: int, noisy: np.ndarray) -> None:
        """Another noisy sum in step t, and the message that follows from it."""
        rate = ETA / (RECORDS / 3)
        self.numbers[2 * t + 1] = noisy
        sent = self.numbers[2 * t] - rate * noisy
        entry = self.entries[1 + t]
        entry["noisy"], entry["sent"] = digest(noisy), digest(sent)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.astype("<f8").tobytes()).hexdigest()


def clipped(part: Examples, model: np.ndarray, batch: Any) -> np.ndarray:
    total = np.zeros(3)
    for e in batch:
        x, sign = part.features[e], 2 * part.labels[e] - 1
        gradient = -sign * x / (1 + np.exp(sign * (x @ model)))
        total += gradient * min(1.0, CLIP / np.linalg.norm(gradient))
    return total


def test_what_is_attested_is_what_the_equation_says(run: Path, design: Design) -> None:
    """The transcript of the first step, by hand: from zero, with the noise of the secrets."""
    plan, forger = design.node_plan(MIDDLE), Forger(run)
    drawn = source(run, plan)
    batch = drawn.batches(RECORDS)[0]
    noisy = clipped(examples(MIDDLE), np.zeros(3), batch) + drawn.step(0, 3)
    np.testing.assert_allclose(forger.numbers[1], noisy, rtol=1e-12)
    head, first = forger.entries[:2]
    assert first["sent"] == digest(0.0 - ETA / 4 * forger.numbers[1])
    assert first["model"] == digest(np.zeros(3))
    own = Secret.load(run / "1/secret").fingerprint
    assert head["secrets"]["secret"] == own
    assert set(head["secrets"]) == {"secret", "audit-secret", "seed 0", "seed 1"}
    neighbour = Forger(run, 0).entries[1]["sent"]
    assert forger.entries[2]["heard"][0]["0"] == neighbour


def test_a_node_that_did_as_designed(run: Path, design: Design) -> None:
    for node in range(3):
        found = audited(run, design, node=node)
        assert set(results(found).values()) == {HELD}
        assert found.verdicts == (HELD,) * 6
        assert found.holds
        assert "averaged bit for bit" in found.checks[-1].why


def test_what_was_not_given_is_not_checked(run: Path, design: Design) -> None:
    found = audited(run, design, secrets=None, data=None, certificate=None, neighbours=())
    open_ = {"secrets", "data", "batches", "noise", "mixing"}
    assert {name for name, result in results(found).items() if result == OPEN} == open_
    assert found.verdicts == (OPEN,) * 6
    assert found.outcome == "Node 1: nothing differs, and not all was checked."
    without_data = audited(run, design, data=None)
    assert results(without_data)["data"] == OPEN
    assert results(without_data)["noise"] == HELD
    assert without_data.verdicts == (OPEN,) * 6
    (run / "1/transcript.f8").unlink()
    without_numbers = results(audited(run, design))
    assert without_numbers["messages"] == without_numbers["noise"] == OPEN


def skipped(forger: Forger, run: Path, plan: Plan) -> None:
    """No noise in step 2, and everything signed as if there was."""
    batch = source(run, plan).batches(RECORDS)[2]
    forger.send(2, clipped(examples(MIDDLE), forger.numbers[4], batch))


def less(forger: Forger, run: Path, plan: Plan) -> None:
    """Half of the noise."""
    forger.send(2, forger.numbers[5] - source(run, plan).step(2, 3) / 2)


def of_another_step(forger: Forger, run: Path, plan: Plan) -> None:
    """The noise of step 1 once more, which their difference shows."""
    drawn = source(run, plan)
    forger.send(2, forger.numbers[5] - drawn.step(2, 3) + drawn.step(1, 3))


def of_another_batch(forger: Forger, run: Path, plan: Plan) -> None:
    """Records of the next batch, under the hash of the right one."""
    drawn = source(run, plan)
    total = clipped(examples(MIDDLE), forger.numbers[4], drawn.batches(RECORDS)[1])
    forger.send(2, total + drawn.step(2, 3))


@pytest.mark.parametrize("change", [skipped, less, of_another_step, of_another_batch])
def test_noise_that_was_not_drawn_as_designed(
    run: Path, design: Design, change: Callable[[Forger, Path, Plan], None]
) -> None:
    forger = Forger(run)
    change(forger, run, design.node_plan(MIDDLE))
    forger.write()
    found = audited(run, design, neighbours=())
    assert {name for name, result in results(found).items() if result == DIFFERS} == {"noise"}
    assert found.verdicts == (HELD, HELD, DIFFERS, HELD, HELD, HELD)
    assert not found.holds
    assert "1 of 6 steps, the first 2" in found.outcome


def test_skipped_noise_is_found_without_data_where_it_is_more_than_a_batch_moves(
    run: Path, design: Design
) -> None:
    forger, plan = Forger(run), design.node_plan(MIDDLE)
    drawn = source(run, plan)
    sizes = [CLIP * len(batch) for batch in drawn.batches(RECORDS)]
    norms = [float(np.linalg.norm(drawn.step(t, 3))) for t in range(6)]
    noisy = [clipped(examples(MIDDLE), forger.numbers[2 * t], ()) for t in range(6)]  # no record
    for t in range(6):
        forger.send(t, noisy[t])
    forger.write()
    found = audited(run, design, data=None, neighbours=())
    expected = tuple(t for t in range(6) if norms[t] > sizes[t])
    assert next(one.steps for one in found.checks if one.check == "noise") == expected
    assert expected


def test_other_batches(run: Path, design: Design) -> None:
    forger = Forger(run)
    forger.entries[3]["batch"] = forger.entries[2]["batch"]
    forger.write()
    found = audited(run, design, neighbours=())
    assert {name for name, result in results(found).items() if result == DIFFERS} == {"batches"}
    assert found.verdicts[2] == DIFFERS


@pytest.mark.parametrize("name", ["secret", "audit-secret", "seeds/seed 0"])
def test_another_secret_than_the_node_was_bound_to(run: Path, design: Design, name: str) -> None:
    (run / "1" / name).unlink()
    Secret.new().save(run / "1" / name)
    found = audited(run, design)
    assert results(found)["secrets"] == DIFFERS
    assert name.rpartition("/")[2] in next(o.why for o in found.checks if o.check == "secrets")
    assert found.verdicts == (DIFFERS,) * 6
    if name != "audit-secret":
        assert results(found)["noise"] == DIFFERS


def test_other_data(run: Path, design: Design) -> None:
    found = audited(run, design, data=run / "0/data.npz")
    assert results(found)["data"] == results(found)["noise"] == DIFFERS


def test_data_of_another_size_than_attested(run: Path, design: Design) -> None:
    """Sums of other numbers are of no record, however short; fewer records are drawn otherwise."""
    forger, plan = Forger(run), design.node_plan(MIDDLE)
    drawn, rate = source(run, plan), ETA / (RECORDS / 3)
    forger.entries[0]["dimension"], model, rows = 4, np.zeros(4), []
    for t in range(6):
        noisy = drawn.step(t, 4) + np.array([0.0, 0.0, 0.0, 0.4])  # whatever this tells
        sent = model - rate * noisy
        forger.entries[1 + t] |= {name: digest(x) for name, x in
            (("model", model), ("noisy", noisy), ("sent", sent))}  # fmt: skip
        rows += [model, noisy]
        model = sent
    forger.numbers = np.array(rows)
    forger.write()
    found = audited(run, design, neighbours=())
    assert results(found)["data"] == DIFFERS
    assert found.verdicts == (DIFFERS,) * 6


@pytest.mark.parametrize("renumbered", [False, True])
def test_steps_in_another_order(run: Path, design: Design, renumbered: bool) -> None:
    forger = Forger(run)
    two, three = forger.entries[3:5]
    forger.entries[3:5] = [three, two]
    if renumbered:
        forger.entries[3]["step"], forger.entries[4]["step"] = 2, 3
        forger.numbers[[4, 5, 6, 7]] = forger.numbers[[6, 7, 4, 5]]
    forger.write()
    found = audited(run, design)
    assert results(found)["noise" if renumbered else "order"] == DIFFERS
    assert found.verdicts[2:4] == (DIFFERS, DIFFERS)


def test_a_line_that_was_changed_or_left_out(run: Path, design: Design) -> None:
    file = run / "1/transcript.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    digest_ = Forger(run).entries[3]["sent"].encode()
    other = digest_.translate(bytes.maketrans(b"0123456789abcdef", b"123456789abcdef0"))
    file.write_bytes(b"".join([*lines[:3], lines[3].replace(digest_, other), *lines[4:]]))
    found = audited(run, design)
    assert results(found)["chain"] == results(found)["signatures"] == DIFFERS
    assert "line 4 is not signed" in next(o.why for o in found.checks if o.check == "signatures")
    assert found.verdicts == (OPEN, OPEN, DIFFERS, DIFFERS, DIFFERS, DIFFERS)
    file.write_bytes(b"".join([*lines[:3], *lines[4:]]))
    assert results(audited(run, design))["chain"] == DIFFERS
    file.write_bytes(b"".join(lines[:5]))  # the end is missing: a run that was stopped
    stopped = audited(run, design)
    assert stopped.holds
    assert "no end: the run stopped after 4 of 6 steps" in str(stopped.checks[3].why)


def test_somebody_else_signed(run: Path, design: Design) -> None:
    forger = Forger(run)
    forger.identity = Identity.new()
    forger.write()
    assert results(audited(run, design))["signatures"] == DIFFERS
    forger.entries[0]["identity"] = forger.identity.public.hex()
    forger.write()
    assert "another identity" in str(audited(run, design).checks[1].why)
    assert results(audited(run, design, certificate=None))["signatures"] == HELD
    forger.entries[0]["identity"] = None
    forger.write()
    assert results(audited(run, design, certificate=None))["signatures"] == OPEN


def test_another_plan(run: Path, design: Design) -> None:
    weaker = solve(private_problems.path_of_seeds()).design
    assert weaker is not None
    found = audit(run / "1/transcript.jsonl", plan=weaker.node_plan(1))
    assert results(found)["plan"] == DIFFERS
    assert "design" in found.checks[2].why
    wrong = Forger(run)
    wrong.entries[0]["rule"]["min_sep"] = 1
    wrong.write()
    assert "another rule of batches" in audited(run, design).checks[2].why


def test_a_message_that_is_not_the_sum_it_says(run: Path, design: Design) -> None:
    """The right noisy sum is shown, and another message was sent."""
    forger = Forger(run)
    forger.entries[2]["sent"] = digest(np.zeros(3))
    forger.write()
    found = audited(run, design)
    assert results(found)["messages"] == DIFFERS
    assert found.verdicts[1] == DIFFERS


def test_what_was_heard_was_sent(run: Path, design: Design) -> None:
    forger = Forger(run, 0)
    forger.entries[3]["sent"] = digest(np.zeros(3))
    forger.write()
    found = audited(run, design)
    assert results(found)["mixing"] == DIFFERS
    assert next(one.steps for one in found.checks if one.check == "mixing")[0] == 2


def test_a_model_that_is_no_average(run: Path, design: Design) -> None:
    """Another start of step 3 than W makes of what was heard."""
    forger, plan = Forger(run), design.node_plan(MIDDLE)
    forger.numbers[6] += 1.0
    forger.entries[4]["model"] = digest(forger.numbers[6])
    batch = source(run, plan).batches(RECORDS)[3]
    total = clipped(examples(MIDDLE), forger.numbers[6], batch) + source(run, plan).step(3, 3)
    forger.send(3, total)
    forger.write()
    found = audited(run, design)
    assert {name for name, result in results(found).items() if result == DIFFERS} == {"mixing"}
    assert 2 in next(one.steps for one in found.checks if one.check == "mixing")


def test_a_first_model_that_tells_something(run: Path, design: Design) -> None:
    """It leaves with the first message, and no average is before it."""
    forger, plan = Forger(run), design.node_plan(MIDDLE)
    forger.numbers[0] += 1.0
    forger.entries[1]["model"] = digest(forger.numbers[0])
    drawn = source(run, plan)
    forger.send(0, clipped(examples(MIDDLE), forger.numbers[0], drawn.batches(RECORDS)[0])
                + drawn.step(0, 3))  # fmt: skip
    forger.write()
    found = audited(run, design, neighbours=())
    assert {name for name, result in results(found).items() if result == DIFFERS} == {"messages"}
    assert "the first model is not zero" in str(found)


def test_another_message_than_a_neighbour_heard(run: Path, design: Design) -> None:
    """Whoever sends two attests one; the neighbour says which one came."""
    forger = Forger(run, 0)
    forger.entries[3]["heard"][0]["1"] = digest(np.ones(3))  # of step 1
    forger.write()
    found = audited(run, design)
    assert {name for name, result in results(found).items() if result == DIFFERS} == {"mixing"}
    assert next(one.steps for one in found.checks if one.check == "mixing") == (1,)


def test_averages_are_not_held_without_the_numbers(run: Path, design: Design) -> None:
    whole = "Node 1: all 6 messages are what the design draws."
    part = "Node 1: all 6 noisy sums are what the design draws; not all models were checked."
    assert audited(run, design).outcome == whole
    for neighbours in ((), [run / "0/transcript.jsonl"]):
        found = audited(run, design, neighbours=neighbours)
        assert (results(found)["mixing"], found.outcome) == (OPEN, part)
    lines = (run / "0/transcript.jsonl").read_bytes().splitlines(keepends=True)
    (run / "0/transcript.jsonl").write_bytes(b"".join(lines[:4]))  # it stopped after step 2
    found = audited(run, design)
    assert (results(found)["mixing"], found.outcome) == (OPEN, part)
    assert "but not known of step 3" in found.checks[-1].why
    (run / "2/transcript.f8").unlink()
    assert "but not known of step 0" in audited(run, design).checks[-1].why


def test_who_was_not_heard_is_said(run: Path, design: Design) -> None:
    """A node may leave out a neighbour that was gone; nobody has to believe that it was."""
    forger = Forger(run)
    del forger.entries[-1]["heard"][0]["2"]
    forger.write()
    assert "at times without node 2" in audited(run, design, neighbours=[
        run / "0/transcript.jsonl"]).checks[-1].why  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "got none"),
        (b"12 monkeys\n", "lines of a node"),
        (b'{"entry": "{}", "signature": ""}\n', "noisedesign-transcript, version 1"),
        (b"[1]\n", "lines of a node"),
        (b"[" * 100_000 + b"\n", "lines of a node"),
    ],
)
def test_files_that_are_no_transcripts(
    tmp_path: Path, design: Design, text: bytes, words: str
) -> None:
    (tmp_path / "t").write_bytes(text)
    with pytest.raises(InputError, match=words):
        audit(tmp_path / "t", plan=design.node_plan(0))
    with pytest.raises(InputError, match="transcript: expected a file"):
        audit(tmp_path / "none", plan=design.node_plan(0))


def test_entries_that_no_node_writes(run: Path, design: Design) -> None:
    forger = Forger(run)
    del forger.entries[2]["batch"]
    forger.write()
    with pytest.raises(InputError, match="transcript: expected entries as a node writes them"):
        audited(run, design)


def test_a_plan_is_that_of_a_file_or_of_the_node_that_wrote(
    run: Path, design: Design, tmp_path: Path
) -> None:
    import noisedesign as nd

    nd.save(design, tmp_path / "d.npz")
    wanted = design.node_plan(MIDDLE)
    wanted.save(tmp_path / "n.plan")
    for name in ("d.npz", "n.plan"):
        assert plan_in(tmp_path / name, run / "1/transcript.jsonl").checksum == wanted.checksum
