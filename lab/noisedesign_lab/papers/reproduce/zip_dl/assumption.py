"""Assumption 5.6 of Zip-DL by the test of its appendix A.6: is the gradient at a model with noise
distributed as the gradient of the model with noise on it? Kolmogorov and Smirnov's distance of
1,000 draws of each, coordinate by coordinate, on samples of length 1, as published."""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.sparse import csr_array

from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.papers.reproduce.zip_dl.ratings import Epoch, Ratings, Single
from noisedesign_lab.papers.reproduce.zip_dl.training import Task, empty_row
from noisedesign_lab.training.seeding import Use, generator

SETTING = "assumption 5.6"
LEVEL = 0.05  # of the test: p-values below it are rejections


class Gradient:
    """The gradient of the mean squared error of all ratings, at models (rows, factors)."""

    def __init__(self, ratings: Ratings, rows: int) -> None:
        self.ratings, m = ratings, len(ratings)
        at = (ratings.rows.T.ravel(), np.arange(2 * m))
        self.sums = csr_array((np.full(2 * m, 2 / m, np.float32), at), (rows, 2 * m))

    def __call__(self, model: Single) -> Single:
        user, film = self.ratings.rows.T
        slopes = self.ratings.errors(model)[:, None]
        told = np.concatenate([slopes * model[film], slopes * model[user]])
        return np.asarray(self.sums @ told)


def run(unit: Unit) -> list[Record]:
    """A row a noise level, for a model that one node trains by as many passes as the unit says."""
    task, seed = Task(unit | {"nodes": 1}), unit["seed"]
    models = task.start()
    epoch = Epoch(ratings=task.train, size=unit["batch_size"], step_size=unit["step_size"])
    for step in range(1, unit["passes"] + 1):
        epoch.run(models, generator(seed, Use.BATCHES, step), np.ones(1, dtype=bool))
    model = models[0].reshape(-1, unit["factors"])
    gradient = Gradient(task.train, len(model))
    rng = generator(seed, Use.NOISE)
    chosen = rng.choice(model.size, min(unit["coordinates"], model.size), replace=False)
    rows = []
    for level in unit["levels"]:
        stddev = np.float32(level * unit["sigma"])
        at, true = [], gradient(model).ravel()[chosen]
        for _ in range(unit["draws"]):
            noise = stddev * rng.standard_normal(model.shape, dtype=np.float32)
            at.append(gradient(model + noise).ravel()[chosen])
        noise = stddev * rng.standard_normal((unit["draws"], len(chosen)), dtype=np.float32)
        found = distances(np.stack(at), true + noise)
        told = {"setting": SETTING, "mechanism": "gradient", "rounds": 1, "seed": seed}
        told |= {"level": level, "stddev": float(stddev), "step": unit["passes"]}
        rows.append(empty_row() | told | found | {"status": "ok"})
    return rows


def distances(of_noise: Single, with_noise: Single) -> Record:
    """Distances of samples (draws, coordinates): divided by their norms, as published, and of
    mean 0 and deviation 1, which is the shape alone. Coordinates whose gradient is always 0, of
    films that nobody rates, are left out, as published."""
    kept = of_noise.any(axis=0)
    pair = [sample[:, kept].astype(np.float64) for sample in (of_noise, with_noise)]
    found: Record = {}
    for name, centres in (("ks", [0.0, 0.0]), ("shape", [one.mean(axis=0) for one in pair])):
        moved = [one - centre for one, centre in zip(pair, centres, strict=True)]
        scaled = [(one / np.linalg.norm(one, axis=0)).T for one in moved]
        tried = [stats.ks_2samp(a, b, method="asymp") for a, b in zip(*scaled, strict=True)]
        distance = np.array([one.statistic for one in tried])
        found |= {f"{name}_least": distance.min(), f"{name}_median": np.median(distance)}
        found |= {f"{name}_most": distance.max()}
        found[f"{name}_rejected"] = np.mean([one.pvalue < LEVEL for one in tried])
    return {name: float(value) for name, value in found.items()}
