"""Training files: what their keys say, and every mistake in them told by the key at fault."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.files.problem_set import problem_files, shipped_problems
from noisedesign_lab.tasks import training_file
from noisedesign_lab.tasks.mechanisms import known_names
from noisedesign_lab.tasks.training_file import (
    BudgetsTable,
    HowTable,
    TrainingFile,
    load_training,
    parse_training,
)
from noisedesign_lab.tasks.training_task import TrainingTask, run
from noisedesign_lab.training.losses import (
    MLP,
    Logistic,
    MatrixFactorization,
    Quadratic,
    Quadratics,
    ResNet,
)
from tests.support import ROOT
from tests.support.command_line import write

GAUSSIAN = 'kind = "gaussian"\nrecords = 60\nfeatures = 2'

TEXT = """mechanisms = ["none", "ldp"]
[graph]
kind = "ring"
nodes = 4
[participation]
epochs = 2
separation = 3
[data]
kind = "gaussian"
records = 60
features = 2
[loss]
kind = "quadratic"
[training]
clip = 0.5
[privacy]
epsilons = [1.0]
"""


def parse(text: str = TEXT, folder: Path = Path()) -> TrainingTask:
    return parse_training(text, folder=folder, name="here")


def changed(*pairs: tuple[str, str]) -> TrainingTask:
    text = TEXT
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return parse(text)


def test_what_is_left_out_is_what_the_library_leaves_out() -> None:
    task = parse()
    assert (task.name, task.seeds, task.clip, task.rounds) == ("here", (0,), 0.5, 1)
    assert (task.delta, task.adjacency, task.step_sizes) == (1e-6, "replace", 0.1)
    assert task.participation == nd.participation.FixedEpoch(epochs=2, separation=3)
    assert task.random is None
    assert task.run_of_all.record == tuple(range(7))
    assert task.test is not None
    assert (len(task.examples), len(task.test)) == (48, 12)
    np.testing.assert_array_equal(task.mixing, nd.mixing_matrix(nd.build_graph("ring", nodes=4)))
    assert isinstance(task.loss, Quadratic)


def test_every_key_reaches_its_task() -> None:
    task = changed(
        ('mechanisms = ["none", "ldp"]', 'name = "all"\nmechanisms = ["ldp"]\nseeds = [4, 2]'),
        (
            "[participation]\nepochs = 2\nseparation = 3",
            '[participation]\nkind = "every-step"\nhorizon = 8\n[mixing]\nedge_failure = 0.2',
        ),
        ("features = 2", "features = 2\ntest = 0.0\nstandardize = true"),
        ('kind = "quadratic"', 'kind = "quadratic"\ncurvature = 0.25'),
        (
            "clip = 0.5",
            'clip = 2.0\nstep_size = 0.4\nschedule = "inverse-sqrt"\nbatch_size = 5\nrounds = 3\n'
            'record_every = 3\nmeasured = 7\nmodels = "mean"\ndivergence = 10.0\n'
            "max_variance = 9.0",
        ),
        (
            "epsilons = [1.0]",
            'noise_multipliers = [0.5, 2.0]\ndelta = 1e-4\nadjacency = "zero-out"',
        ),
    )
    assert (task.name, task.seeds, task.mechanisms) == ("all", (4, 2), ("ldp",))
    assert isinstance(task.random, nd.graphs.EdgeDropout)
    assert task.participation == nd.participation.every_step(8)
    assert task.test is None
    np.testing.assert_allclose(task.examples.features.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(task.examples.features.std(axis=0), 1)
    assert isinstance(task.loss, Quadratic)
    assert task.loss.curvature == 0.25
    assert (task.clip, task.batch_size, task.rounds, task.measured) == (2.0, 5, 3, 7)
    assert (task.whose, task.bound, task.max_variance) == ("mean", 10.0, 9.0)
    np.testing.assert_allclose(task.step_sizes, 0.4 / np.sqrt(np.arange(1, 9)))
    assert task.run_of_all.record == (0, 3, 6, 8)
    assert task.noise_multipliers == (0.5, 2.0)
    assert (task.delta, task.adjacency) == (1e-4, "zero-out")
    assert len(run(task)) == 2 * 2 * 4


def test_a_list_of_step_sizes() -> None:
    sizes = [0.5, 0.4, 0.3, 0.2, 0.1, 0.1]
    task = changed(("clip = 0.5", f"step_size = {sizes}"))
    np.testing.assert_array_equal(task.step_sizes, sizes)


@pytest.mark.parametrize(
    ("data", "loss", "kind"),
    [
        ('kind = "objectives"\ncount = 4', 'kind = "whisper-quadratics"', Quadratics),
        ('kind = "npy"\nfile = "labels.npy"', 'kind = "logistic"\nintercept = true', Logistic),
        ('kind = "npy"\nfile = "labels.npy"', 'kind = "mlp"\nhidden = 3', MLP),
        (
            'kind = "npy"\nfile = "pairs.npy"',
            'kind = "matrix-factorization"\nfactors = 2',
            MatrixFactorization,
        ),
        pytest.param(
            'kind = "femnist"\nfolder = "femnist"',
            'kind = "resnet"\nchannels = 1\nclasses = 62\nwidth = 2\nblocks = [1]\ngroups = 1',
            ResNet,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_data_and_losses_of_every_kind(data: str, loss: str, kind: type, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.sign(rng.standard_normal(40))
    np.save(tmp_path / "labels.npy", np.column_stack([rng.standard_normal((40, 3)), labels]))
    pairs = np.column_stack([np.arange(40) % 5, np.arange(40) % 7, rng.uniform(1, 5, 40)])
    np.save(tmp_path / "pairs.npy", pairs)
    for part in ("train", "test"):
        (tmp_path / "femnist" / part).mkdir(parents=True)
        own = {"x": rng.uniform(size=(24, 784)).tolist(), "y": rng.integers(62, size=24).tolist()}
        content = json.dumps({"users": ["a"], "num_samples": [24], "user_data": {"a": own}})
        (tmp_path / "femnist" / part / "all_data_0.json").write_text(content)
    text = TEXT.replace(GAUSSIAN, data)
    text = text.replace('kind = "quadratic"', loss)
    if "objectives" in data:
        text += '[partition]\nkind = "in-order"\n'
        text = text.replace("epochs = 2\nseparation = 3", "epochs = 6\nseparation = 1")
    task = parse(text, tmp_path)
    assert isinstance(task.loss, kind)
    assert all(row["status"] == "ok" for row in run(task))


def test_partitions_of_every_kind(tmp_path: Path) -> None:
    labels = np.repeat([-1.0, 1.0], 40)
    np.save(tmp_path / "labels.npy", np.column_stack([np.arange(80.0), labels]))
    text = TEXT.replace(GAUSSIAN, 'kind = "npy"\nfile = "labels.npy"\ntest = 0.0').replace(
        '"quadratic"', '"quadratic"\ncurvature = 0.0'
    )
    rng = np.random.default_rng(3)
    even = parse(text, tmp_path).partition(rng)
    assert [len(part) for part in even] == [20] * 4
    in_order = parse(f'{text}[partition]\nkind = "in-order"\n', tmp_path).partition(rng)
    np.testing.assert_array_equal(np.concatenate(in_order), np.arange(80))
    uneven = '[partition]\nkind = "dirichlet"\nconcentration = 0.3\nminimum = 3\n'
    sizes = [len(part) for part in parse(text + uneven, tmp_path).partition(rng)]
    assert sum(sizes) == 80
    assert 3 <= min(sizes) < max(sizes)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"ldp"', '"lpd"', r"mechanisms: expected one of none, ldp, .*Did you mean ldp\?"),
        ('["none", "ldp"]', "[]", "mechanisms: expected one or more names"),
        ('["none", "ldp"]', '["ldp", "ldp"]', "mechanisms: expected every mechanism once"),
        ('["none", "ldp"]', '"ldp"', "mechanisms: expected a list"),
        ('mechanisms = ["none", "ldp"]', "", "mechanisms: expected a value, got nothing"),
        ("mechanisms =", "sedes = 3\nmechanisms =", r"sedes: .*Did you mean seeds\?"),
        ("mechanisms =", "seeds = 0\nmechanisms =", "seeds: "),
        ("mechanisms =", "seeds = [1, 1]\nmechanisms =", "seeds: expected one or more different"),
        ("[graph]", "[workload]\n[graph]", "workload: .*is a key of problem files"),
        ("[graph]", "[observer]\n[graph]", "observer: .*is a key of account files"),
        ('kind = "ring"\nnodes = 4', 'kind = "rings"', r"graph.kind: .*Did you mean ring\?"),
        ("nodes = 4", "nodes = 4.0", "graph.nodes: expected an integer"),
        ("separation = 3", "separatio = 3", r"participation.separatio: .*Did you mean separation"),
        (
            "separation = 3",
            "separation = 13",
            r"training.batch_size: expected at least 13, one a batch.*node",
        ),
        ("records = 60", "records = 0", "data.records: expected an integer >= 1"),
        ("records = 60", "", "data.records: expected a value"),
        ("records = 60", "records = 60\ntest = 1.0", r"data.test: expected a share in \[0, 1\)"),
        ("records = 60", "records = 60\ntest = 1e-9", "data.test: "),
        ("records = 60", "records = 3", "partition.nodes: expected at most 2 nodes"),
        ('kind = "gaussian"', 'kind = "gausian"', r"data.kind: .*Did you mean gaussian\?"),
        ('kind = "quadratic"', 'kind = "quadratics"', r"loss.kind: .*Did you mean quadratic\?"),
        ('kind = "quadratic"', 'kind = "logistic"', "data: expected targets -1 and 1"),
        (
            'kind = "quadratic"',
            'kind = "whisper-quadratics"',
            'data.kind: expected data.kind = "objectives"',
        ),
        (
            'kind = "quadratic"',
            'kind = "matrix-factorization"',
            "data: expected the number of a user",
        ),
        ('kind = "quadratic"', 'kind = "quadratic"\ncurvature = -1.0', "loss.curvature: "),
        ('[loss]\nkind = "quadratic"\n', "", r"loss: expected a \[loss\] table"),
        ("clip = 0.5", "clip = 0.0", "training.clip: "),
        ("clip = 0.5", "clip = inf", "training.clip: "),
        ("clip = 0.5", "rounds = 0", "training.rounds: "),
        ("clip = 0.5", "step_size = -0.1", "training.step_size: "),
        ("clip = 0.5", "step_size = [0.1]", "training.step_size: expected 6 values"),
        (
            "clip = 0.5",
            'step_size = [0.1]\nschedule = "inverse-sqrt"',
            "training.step_size: expected one number",
        ),
        (
            "clip = 0.5",
            'schedule = "linear"',
            "training.schedule: expected one of constant, inverse-sqrt",
        ),
        ("clip = 0.5", "record_every = 0", "training.record_every: "),
        ("clip = 0.5", "measured = 0", "training.measured: "),
        ("clip = 0.5", 'models = "all"', "training.models: expected one of nodes, mean"),
        ("clip = 0.5", "divergence = 0.5", "training.divergence: "),
        ("clip = 0.5", "batch_size = 7", "training.batch_size: expected 3 batches a round"),
        ("epsilons = [1.0]", "epsilons = [-1.0]", "privacy.epsilons: "),
        ("epsilons = [1.0]", "epsilons = []", "privacy.epsilons: expected one or more"),
        ("epsilons = [1.0]", "epsilons = 1.0", "privacy.epsilons: expected a list"),
        (
            "epsilons = [1.0]",
            "epsilons = [1.0]\nnoise_multipliers = [1.0]",
            "privacy.epsilons: expected nothing beside",
        ),
        ("epsilons = [1.0]", "epsilon = 1.0", r"privacy.epsilon: .*Did you mean epsilons\?"),
        ("epsilons = [1.0]", "epsilons = [1.0]\ndelta = 1.5", "privacy.delta: "),
        (
            "epsilons = [1.0]",
            'epsilons = [1.0]\nadjacency = "swap"',
            "privacy.adjacency: expected one of",
        ),
        ("epsilons = [1.0]", "", "privacy.epsilons: expected budgets for ldp, got nothing"),
    ],
)
def test_a_mistake_names_its_key(old: str, new: str, told: str, tmp_path: Path) -> None:
    assert old in TEXT
    path = write(tmp_path, TEXT.replace(old, new), "task.toml")
    with pytest.raises(InputError) as error:
        load_training(path)
    assert re.match(told, str(error.value)), error.value
    assert "task.toml" in str(error.value)


def test_private_factors_have_no_budget(tmp_path: Path) -> None:
    pairs = np.column_stack([np.arange(40) % 5, np.arange(40) % 7, np.ones(40)])
    np.save(tmp_path / "pairs.npy", pairs)
    text = TEXT.replace(GAUSSIAN, 'kind = "npy"\nfile = "pairs.npy"')
    text = text.replace('"quadratic"', '"matrix-factorization"\nfactors = 2\nprivate_users = true')
    with pytest.raises(InputError, match="privacy.epsilons: expected noise_multipliers for a loss"):
        parse(text, tmp_path)
    rows = run(parse(text.replace("epsilons", "noise_multipliers"), tmp_path))
    assert {(row["epsilon"], row["mu"]) for row in rows} == {(None, None)}
    assert {row["protects"] for row in rows} == {"nothing that is accounted for"}
    assert {row["stddev"] for row in rows} == {0.0, 0.5}


def test_a_file_that_is_none(tmp_path: Path) -> None:
    for text in ("mechanisms = [", 'mechanisms = ["ldp"]'):
        with pytest.raises(InputError):
            load_training(write(tmp_path, text, "task.toml"))
    with pytest.raises(InputError, match="Did you mean training/ring-quadratic"):
        load_training("training/ring-quadratics")


# --- shipped files, and the page on their keys ----------------------------------------------------


def test_shipped_files_are_listed_as_what_they_are() -> None:
    found = {one.name: one for one in shipped_problems() if one.design == "training"}
    files = sorted((ROOT / "problems/training").glob("*.toml"))
    assert [one.path for one in found.values()] == files
    assert (found["training/ring-quadratic"].nodes, found["training/ring-quadratic"].steps) == (
        10,
        20,
    )
    with pytest.raises(InputError, match="files of other kinds"):
        problem_files(["training"])


@pytest.mark.parametrize(
    "path", sorted((ROOT / "problems/training").glob("*.toml")), ids=lambda path: path.stem
)
def test_shipped_files_are_whole(path: Path) -> None:
    try:
        task = load_training(path)
    except InputError as error:
        if "NOISEDESIGN_DATA" in str(error):
            pytest.skip(f"the data of {path.stem} are not on this machine (NOISEDESIGN_DATA)")
        raise
    assert task.name == path.stem
    assert task.identity


def test_the_page_names_every_key_and_kind() -> None:
    page = (ROOT / "problems/README.md").read_text(encoding="utf-8")
    text = page[page.index("## Training files") :]
    tables: list[Any] = [
        *(TrainingFile, HowTable, BudgetsTable),
        *(*training_file._DATA, *training_file._LOSSES, *training_file._PARTITIONS),
    ]
    for table in tables:
        for key, field in table.model_fields.items():
            named = f"`{key}`" in text or f"[{key}]" in text
            assert named or key == "kind", f"{table.__name__}.{key}"
            if key == "kind":
                assert f"`{field.annotation.__args__[0]}`" in text
    for name in known_names():
        assert f"`{name}`" in text


def test_more_measurements_than_anybody_reads_are_refused_before_they_are_listed() -> None:
    assert len(HowTable(record_every=10).record(1_000_000)) == 100_001
    assert len(HowTable().record(10**12)) == 11
    with pytest.raises(InputError, match="training.record_every: expected at most 100000"):
        HowTable(record_every=5).record(10**12)
