"""Records to train on, fetched from their official source, never shipped, always checked."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError, describe
from noisedesign.system.datasets import DataFile

Places = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Records of a data set: features (N, p), targets (N,), and ``owners`` (N,), persons."""

    features: Array
    targets: Array
    owners: Places | None = None

    def __post_init__(self) -> None:
        features = _checks.matrix(self.features, field="features")
        shape = (len(features),)
        targets = _checks.array_of_shape(self.targets, field="targets", shape=shape)
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)
        owners = self.owners
        if owners is not None and (owners.dtype.kind != "i" or owners.shape != shape):
            raise InputError("owners", expected=f"integers of shape {shape}", got=describe(owners))

    def __len__(self) -> int:
        """N."""
        return len(self.targets)

    def at(self, places: Places) -> Examples:
        """Return the records at ``places``, shape (k,)."""
        if not len(places):
            raise InputError("examples", expected="at least one example", got="none")
        owners = None if self.owners is None else self.owners[places]
        return Examples(features=self.features[places], targets=self.targets[places], owners=owners)

    @classmethod
    def joined(cls, parts: Sequence[Examples]) -> Examples:
        """Join the records of several data sets, all with owners or all without."""
        owners = [part.owners for part in parts if part.owners is not None]
        if owners and len(owners) != len(parts):
            got = f"{len(owners)} of {len(parts)} data sets with owners"
            raise InputError("owners", expected="those of all data sets, or none", got=got)
        return cls(
            features=np.concatenate([part.features for part in parts]),
            targets=np.concatenate([part.targets for part in parts]),
            owners=np.concatenate(owners) if owners else None,
        )


_File = partial(DataFile, field="data")
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
A9A_TRAIN = _File(
    name="a9a/a9a",
    sha256="f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
    url=f"{_LIBSVM}/a9a",
)
A9A_TEST = _File(
    name="a9a/a9a.t",
    sha256="1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
    url=f"{_LIBSVM}/a9a.t",
)


def _lines_of_numbers(content: bytes) -> bytes:
    """Lines that end in a line feed, without the line of names that some copies begin with."""
    lines = content.replace(b"\r\n", b"\n").strip(b"\n").split(b"\n")
    return b"\n".join(lines[lines[0].startswith(b"longitude,") :]) + b"\n"


CALIFORNIA_HOUSING = _File(
    name="california-housing/cal_housing.data",
    sha256="a2b44dcc7e1c9091b43c4f458b25cbd1f7e8068d08edd26bc4703108d3fa6214",
    url="https://ndownloader.figshare.com/files/5976036",
    member="CaliforniaHousing/cal_housing.data",
    canonical=_lines_of_numbers,
    checksum_of="its lines of numbers, each ended by a line feed,",
)

MOVIELENS_SMALL = _File(
    name="movielens-small/ratings.csv",
    sha256="aa289ca83157595d0df6aea1be6a4ded676ddc4385472e8313a8ed9805352646",
    url="https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",
    member="ml-latest-small/ratings.csv",
)

CIFAR10 = _File(
    name="cifar-10/cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
)


def a9a() -> tuple[Examples, Examples]:
    """Load a9a of LIBSVM (UCI Adult; Kohavi 1996), to train and to test on; targets -1 and 1."""
    return _libsvm(A9A_TRAIN), _libsvm(A9A_TEST)


def _libsvm(file: DataFile) -> Examples:
    """A label a line, and the numbers, from 1, of the features that are 1."""
    lines = file.read().decode("ascii").splitlines()
    features, targets = np.zeros((len(lines), 123)), np.empty(len(lines))
    for row, line in enumerate(lines):
        label, *ones = line.split()
        targets[row] = float(label)
        features[row, [int(one.removesuffix(":1")) - 1 for one in ones]] = 1
    return Examples(features=features, targets=targets)


def california_housing() -> Examples:
    """Load house values in 100,000 dollars (StatLib; Pace and Barry 1997), not standardised."""
    table = np.loadtxt(io.BytesIO(CALIFORNIA_HOUSING.read()), delimiter=",")
    longitude, latitude, age, rooms, bedrooms, people, households, income, value = table.T
    a_household = [column / households for column in (rooms, bedrooms, people)]
    columns = (income, age, *a_household[:2], people, a_household[2], latitude, longitude)
    return Examples(features=np.stack(columns, axis=1), targets=value / 100_000)


def movielens_small() -> Examples:
    """Load ratings (GroupLens 2018; Harper and Konstan 2015): user and film, owned by users."""
    content = io.BytesIO(MOVIELENS_SMALL.read())
    table = np.loadtxt(content, delimiter=",", skiprows=1, usecols=(0, 1, 2))
    pairs = [np.unique(column, return_inverse=True)[1] for column in table[:, :2].T]
    features = np.stack(pairs, axis=1).astype(np.float64)
    return Examples(features=features, targets=table[:, 2], owners=pairs[0])


def cifar10() -> tuple[Examples, Examples]:
    """Load CIFAR-10 (Krizhevsky 2009), to train and to test on: images of 3 x 32 x 32 numbers from
    -1 to 1, channel by channel and row by row, and the numbers of their classes, 0 to 9."""

    def records(*names: str) -> Examples:
        members = (tar.extractfile(f"cifar-10-batches-bin/{name}.bin") for name in names)
        content = b"".join(member.read() for member in members if member is not None)
        table = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        return Examples(features=table[:, 1:] / 127.5 - 1, targets=table[:, 0].astype(np.float64))

    with tarfile.open(fileobj=io.BytesIO(CIFAR10.read())) as tar:
        return records(*(f"data_batch_{k}" for k in range(1, 6))), records("test_batch")


def femnist(folder: str | Path) -> tuple[Examples, Examples]:
    """Load FEMNIST (Caldas and others 2018) as LEAF's scripts write it: ``train/*.json`` and
    ``test/*.json`` in ``folder``. Images of 28 x 28 numbers from 0 to 1, row by row, and the
    numbers of their classes, 0 to 61, owned by writers.

    Args:
        folder: where LEAF has put its data; no checksum of them is published.

    Raises:
        InputError: no such files, or others.
    """
    parts = [list(_of_writers(Path(folder) / part)) for part in ("train", "test")]
    numbers = {name: i for i, name in enumerate(sorted({name for of in parts for name, *_ in of}))}
    train, test = (
        Examples(
            features=np.concatenate([images for _, images, _ in of]),
            targets=np.concatenate([labels for *_, labels in of]),
            owners=np.repeat([numbers[name] for name, *_ in of], [len(y) for *_, y in of]),
        )
        for of in parts
    )
    return train, test


def _of_writers(folder: Path) -> Iterator[tuple[str, Array, Array]]:
    """Yield every writer of a folder, with images and labels."""
    expected = "files *.json of LEAF with user_data of 784 numbers an image"
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InputError("data.folder", expected=expected, got=f"none in {folder}")
    for path in paths:
        try:
            for name, own in json.loads(path.read_bytes())["user_data"].items():
                images = np.asarray(own["x"], dtype=np.float64).reshape(-1, 28 * 28)
                labels = np.asarray(own["y"], dtype=np.float64)
                if labels.shape != (len(images),):
                    raise ValueError(f"{len(labels)} labels of {len(images)} images")
                yield name, images, labels
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            got = f"{path.name}: {type(error).__name__}, {error}"
            raise InputError("data.folder", expected=expected, got=got) from error
