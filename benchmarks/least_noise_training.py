"""What noise costs in training, by mixing weights: ``python -m benchmarks.least_noise_training``.

Logistic regression of incomes (a9a) on the karate club or another graph, two epochs of small
batches, under the noise of Whisper D-SGD for all iterates. Every W has its own best step size by
the seeds 0 to 3, and its cost, the loss above that without noise and of Metropolis-Hastings weights
at their best step, is of the seeds 100 to 107.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import noisedesign as nd
from noisedesign.tasks import report
from noisedesign.tasks.report import Record
from noisedesign_lab.tasks.table import train
from noisedesign_lab.tasks.training_file import parse_training

STEPS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
CAP = 10.0
TEXT = """
mechanisms = ["{mechanism}"]
[graph]
kind = "matrix"
file = "{mixing}.npy"
[participation]
epochs = 2
separation = {separation}
[data]
kind = "a9a"
[partition]
kind = "iid"
[loss]
kind = "logistic"
[training]
clip = 1.0
batch_size = 32
step_size = {step}
max_variance = {cap}
record_every = 1000
[privacy]
epsilons = [{epsilon}]
delta = 1e-5
"""


def loss(folder: Path, *, seeds: range, **keys: object) -> float:
    task = parse_training(TEXT.format(cap=CAP, **keys), folder=folder)
    rows = [row for row in train(task, seeds=seeds).rows if row["status"] == "ok"]
    last = max(row["step"] for row in rows)
    found = [row["test_loss"] for row in rows if row["step"] == last]
    return float(np.mean(found)) if len(found) == len(seeds) else np.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="karate")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2.0, 5.0])
    parser.add_argument("--horizon", type=int, default=32, help="steps that W is chosen for")
    arguments = parser.parse_args()
    problem = nd.SpaceProblem.from_graph(
        nd.build_graph(arguments.graph),
        max_variance=CAP,
        error=nd.ErrorMeasure(horizon=arguments.horizon),
    )
    chosen = nd.graphs.least_noise_mixing(problem)
    separation = -(-32_561 // len(problem.nodes) // 32)  # batches of an epoch
    rows: list[Record] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "plain.npy", problem.mixing)
        np.save(folder / "chosen.npy", chosen.mixing)

        def best(mixing: str, mechanism: str, epsilon: float) -> tuple[float, float]:
            keys = {"mixing": mixing, "mechanism": mechanism, "epsilon": epsilon}
            keys |= {"separation": separation}
            tried = [loss(folder, seeds=range(4), step=step, **keys) for step in STEPS]
            step = STEPS[int(np.argmin(tried))]
            return step, loss(folder, seeds=range(100, 108), step=step, **keys)

        for epsilon in arguments.epsilons:
            _, without = best("plain", "none", epsilon)
            costs = {}
            for mixing in ("plain", "chosen"):
                for mechanism in ("ldp", "whisper-horizon"):
                    step, found = best(mixing, mechanism, epsilon)
                    costs[mixing, mechanism] = found - without
                    over = costs[mixing, mechanism] / costs.get(("plain", mechanism), np.nan)
                    rows.append(
                        {
                            "epsilon": epsilon,
                            "weights": mixing,
                            "noise": mechanism,
                            "step": step,
                            "loss": round(found, 4),
                            "cost": round(found - without, 4),
                            "over plain": round(float(over), 3),
                        }
                    )
    report.print_table(rows, list(rows[0]), title=f"what noise costs: {arguments.graph}")


if __name__ == "__main__":
    main()
