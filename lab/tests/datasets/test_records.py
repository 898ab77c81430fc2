"""Records to train on: what each file says, and what is told where there is none."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pooch
import pytest

from noisedesign.base.checks import InputError
from noisedesign.system.datasets import DataFile
from noisedesign_lab import datasets
from noisedesign_lab.datasets import (
    Examples,
    a9a,
    california_housing,
    cifar10,
    femnist,
    movielens_small,
)

FILES = {
    "a9a": (datasets.A9A_TRAIN, a9a),
    "a9a.t": (datasets.A9A_TEST, a9a),
    "housing": (datasets.CALIFORNIA_HOUSING, california_housing),
    "movielens": (datasets.MOVIELENS_SMALL, movielens_small),
    "cifar10": (datasets.CIFAR10, cifar10),
}


REAL = os.environ.get("NOISEDESIGN_DATA", "")


def needs(name: str) -> Path:
    """The real file, where it is, whatever a test has made of the variable."""
    path = Path(REAL) / name
    if not path.is_file():
        pytest.skip(f"NOISEDESIGN_DATA names no folder with {name}")
    return path


def test_real_incomes_are_what_each_line_says() -> None:
    """Another reader: a dictionary a line; how many of each label is printed beside the source."""
    files = [needs("a9a/a9a"), needs("a9a/a9a.t")]
    for examples, path, (records_, positive) in zip(
        a9a(), files, [(32561, 7841), (16281, 3846)], strict=True
    ):
        assert examples.features.shape == (records_, 123)
        assert examples.features.dtype == examples.targets.dtype == np.float64
        assert set(examples.targets) == {-1.0, 1.0}
        assert (examples.targets == 1).sum() == positive
        lines = path.read_text().splitlines()
        for row in (0, 1, records_ // 2, records_ - 1):
            label, *pairs = lines[row].split()
            sparse = dict(pair.split(":") for pair in pairs)
            dense = [float(sparse.get(str(j), 0)) for j in range(1, 124)]
            assert examples.targets[row] == float(label)
            np.testing.assert_array_equal(examples.features[row], dense)


def test_real_house_prices_by_hand() -> None:
    """The first block: 880 rooms, 129 bedrooms and 322 people in 126 households."""
    needs(datasets.CALIFORNIA_HOUSING.name)
    houses = california_housing()
    assert houses.features.shape == (20640, 8)
    first = [8.3252, 41, 880 / 126, 129 / 126, 322, 322 / 126, 37.88, -122.23]
    np.testing.assert_allclose(houses.features[0], first, rtol=1e-15)
    assert houses.targets[0] == 4.526
    assert (houses.targets.min(), houses.targets.max()) == (0.14999, 5.00001)
    assert (houses.features[:, 1].min(), houses.features[:, 1].max()) == (1, 52)  # years


def test_house_prices_without_column_names_are_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The official archive has none; other line ends, or none at the last line, do not matter."""
    content = needs(datasets.CALIFORNIA_HOUSING.name).read_bytes()
    expected = california_housing()
    lines = content.splitlines()
    numbers = lines[lines[0].startswith(b"longitude") :]
    copy = tmp_path / datasets.CALIFORNIA_HOUSING.name
    copy.parent.mkdir()
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path))
    for written in (b"\n".join(numbers) + b"\n", b"\r\n".join(numbers)):
        copy.write_bytes(written)
        np.testing.assert_array_equal(california_housing().features, expected.features)
    copy.write_bytes(b"\n".join([*numbers[1:], numbers[0]]) + b"\n")
    with pytest.raises(InputError, match="altered"):
        california_housing()


def test_real_ratings() -> None:
    path = needs(datasets.MOVIELENS_SMALL.name)
    ratings = movielens_small()
    assert ratings.features.shape == (100836, 2)
    assert ratings.owners is not None
    np.testing.assert_array_equal(ratings.owners, ratings.features[:, 0])
    assert [len(set(column)) for column in ratings.features.T] == [610, 9724]
    assert set(ratings.targets) == {half / 2 for half in range(1, 11)}
    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    films = sorted({int(row["movieId"]) for row in rows})
    for at in (0, 1, 50_000, 100_835):
        user, film = ratings.features[at].astype(int)
        assert int(rows[at]["userId"]) == user + 1
        assert int(rows[at]["movieId"]) == films[film]
        assert float(rows[at]["rating"]) == ratings.targets[at]


def test_images_of_cifar10_in_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records as the official page tells them: a label, then 1,024 red, green and blue bytes."""
    rng = np.random.default_rng(0)
    path = tmp_path / datasets.CIFAR10.name
    path.parent.mkdir()
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    records = {name: rng.integers(256, size=(3, 3073), dtype=np.uint8) for name in names}
    with tarfile.open(path, "w:gz") as tar:
        for name, rows in reversed(records.items()):
            rows[:, 0] %= 10
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = rows.nbytes
            tar.addfile(member, io.BytesIO(rows.tobytes()))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(datasets, "CIFAR10", replace(datasets.CIFAR10, sha256=digest))
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path))
    train, test = cifar10()
    assert (len(train), len(test)) == (15, 3)
    batch = records["data_batch_2"]
    assert train.targets[4] == batch[1, 0]
    assert train.features[4, 1024 + 33] == pytest.approx(batch[1, 1 + 1024 + 33] / 255 * 2 - 1)
    np.testing.assert_array_equal(test.targets, records["test_batch"][:, 0])
    assert (train.features.min(), train.features.max()) == (-1, 1)


def _written(folder: Path, users: dict[str, tuple[list[list[float]], list[int]]]) -> None:
    """A file as LEAF's scripts write it."""
    folder.mkdir(exist_ok=True)
    data = {name: {"x": x, "y": y} for name, (x, y) in users.items()}
    content = {"users": list(users), "num_samples": [], "user_data": data}
    (folder / f"all_data_{len(list(folder.iterdir()))}.json").write_text(json.dumps(content))


def test_images_of_femnist_as_leaf_writes_them(tmp_path: Path) -> None:
    """Two files to train on; the same writer has the same number in both parts."""
    grey = [[k / 784] * 784 for k in range(4)]
    _written(tmp_path / "train", {"f2": (grey[:2], [61, 3])})
    _written(tmp_path / "train", {"f1": (grey[2:3], [7])})
    _written(tmp_path / "test", {"f2": (grey[3:], [0])})
    train, test = femnist(tmp_path)
    assert train.owners is not None
    assert test.owners is not None
    np.testing.assert_array_equal(train.targets, [61, 3, 7])
    np.testing.assert_array_equal(train.owners, [1, 1, 0])
    np.testing.assert_array_equal(test.owners, [1])
    np.testing.assert_allclose(train.features[:, 0] * 784, [0, 1, 2])


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        "nothing",
        '{"user_data": {"a": {"x": [[0.5, 0.5]], "y": [1]}}}',
        json.dumps({"user_data": {"a": {"x": [[0.0] * 784], "y": [1, 2]}}}),
    ],
)
def test_other_files_than_those_of_leaf(content: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data.folder: .*got none in"):
        femnist(tmp_path)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "one.json").write_text(content)
    with pytest.raises(InputError, match=r"data.folder: .*one.json"):
        femnist(tmp_path)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no data folder, and no way to the network."""
    folder = tmp_path / "cache"

    def offline(*args: object, **kwargs: object) -> str:
        raise ConnectionError("no network in tests")

    monkeypatch.delenv("NOISEDESIGN_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: folder / project)
    monkeypatch.setattr(pooch, "retrieve", offline)
    return folder / "noisedesign"


@pytest.mark.parametrize(("file", "load"), FILES.values(), ids=FILES)
def test_records_offline_say_which_file_goes_where(
    file: DataFile,
    load: Callable[[], object],
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if file is datasets.A9A_TEST:  # which is read second
        content = needs(datasets.A9A_TRAIN.name).read_bytes()
        (tmp_path / "a9a").mkdir()
        (tmp_path / datasets.A9A_TRAIN.name).write_bytes(content)
        monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"^data: .*ConnectionError") as caught:
        load()
    told = str(caught.value)
    assert file.url in told
    assert f"a folder that holds {file.name}:" in told
    assert file.sha256 in told
    assert list(cache.rglob("*.*")) == []


@pytest.mark.parametrize(("file", "load"), FILES.values(), ids=FILES)
def test_altered_records_are_refused(
    file: DataFile, load: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (datasets.A9A_TRAIN.name, file.name):
        content = bytearray(needs(name).read_bytes())
        if name == file.name:
            content[-2:-2] = b"1"
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path))
    with pytest.raises(InputError, match=f"^data: .*{re.escape(file.name)}.*altered"):
        load()


def test_examples_that_do_not_fit_together() -> None:
    whole = Examples(features=np.arange(6.0).reshape(3, 2), targets=np.ones(3), owners=np.arange(3))
    assert len(whole) == 3
    some = whole.at(np.array([2, 0]))
    np.testing.assert_array_equal(some.features, [[4, 5], [0, 1]])
    np.testing.assert_array_equal(some.owners, [2, 0])
    np.testing.assert_array_equal(Examples.joined([some, whole]).owners, [2, 0, 0, 1, 2])
    bare = Examples(features=np.zeros((3, 2)), targets=np.zeros(3))
    assert Examples.joined([bare, bare]).owners is None
    with pytest.raises(InputError, match="^targets: "):
        Examples(features=np.zeros((3, 2)), targets=np.zeros(2))
    with pytest.raises(InputError, match="^features: .*finite"):
        Examples(features=np.full((3, 2), np.nan), targets=np.zeros(3))
    with pytest.raises(InputError, match=r"^owners: expected integers of shape \(3,\)"):
        Examples(features=np.zeros((3, 2)), targets=np.zeros(3), owners=np.arange(2))
    with pytest.raises(InputError, match="^owners: .*1 of 2"):
        Examples.joined([whole, bare])
    with pytest.raises(InputError, match="^examples: .*none"):
        whole.at(np.array([], dtype=int))
