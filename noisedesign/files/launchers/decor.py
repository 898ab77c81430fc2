# Written by noisedesign: DECOR with the noise of a design.
"""Runs ``train.py`` of https://github.com/elfirdoussilab1/DECOR, in whose folder it is started.

Takes the arguments of ``train.py`` but for those that the design says. Left alone that program adds
the same noise of edges at every step, which protects nothing after the first; multiplies it by W;
runs one step more than it is told; and divides a smaller last batch by its own size."""

import os
import sys

if (
    __name__ == "__main__"
):  # modules are the trainer's, and none beside this file, whatever its name
    sys.path[0] = os.getcwd()

import argparse
import json
import runpy
from importlib import import_module
from pathlib import Path
from typing import Any

NUMBERS = "decor.json"  # name of the file of numbers, beside this one

TOPOLOGY = "noisedesign"
DEFAULT_BATCH_SIZE = 64
SAID = (  # arguments of the trainer that the design says
    *("--num-nodes", "--topology-name", "--method", "--num-iter", "--gradient-clip"),
    *("--sigma", "--sigma-cor", "--epsilon", "--delta"),
)


class Edges:
    """The noise of edges, drawn again for every step: the trainer's V.

    ``V[i]`` is what node i adds at a step, one row an edge; the second time a node is asked for is
    the next step."""

    def __init__(self, links: list[tuple[int, int]], *, size: int, stddev: float, device: Any):
        self.links, self.size, self.stddev, self.device = links, size, stddev, device
        self.asked: dict[int, Any] = {}
        self.steps = 0

    def __getitem__(self, node: int) -> Any:
        torch: Any = import_module("torch")
        if not self.steps or node in self.asked:
            self.drawn = torch.randn(len(self.links), self.size) * self.stddev
            self.asked = {}
            self.steps += 1
        self.asked[node] = True
        rows = [
            self.drawn[at] if node == first else -self.drawn[at]
            for at, (first, second) in enumerate(self.links)
            if node in (first, second)
        ]
        return torch.stack(rows or [torch.zeros(self.size)]).to(self.device)


def stop(words: str) -> "SystemExit":
    return SystemExit(f"noisedesign: error: {words}")


def numbers_beside() -> dict[str, Any]:
    path = Path(__file__).resolve().with_name(NUMBERS)
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise stop(f"expected the numbers of the export in {path}, got {error}") from None
    if found.get("to") != "decor":
        raise stop(f"expected an export to decor in {path}, got another file")
    if not found["calibrated"]:
        raise stop(f"the design has no privacy target. {found['note']}")
    return found


def arguments(given: list[str], found: dict[str, Any]) -> tuple[list[str], str, int]:
    """The arguments for train.py, the unit that is protected, and the batch size."""
    for word in given:
        if word.split("=")[0] in SAID:
            raise stop(f"{word.split('=')[0]} is said by the design: leave it out")
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--privacy", choices=("user", "example"), required=True)
    parser.add_argument("--batch-size", type=int, default=DEFAULT_BATCH_SIZE)
    known, _ = parser.parse_known_args(given)
    size = known.batch_size
    if size < 1:
        raise stop(f"--batch-size: expected at least 1, got {size}")
    # The trainer adds noise to the mean of a batch, or to its gradient, clipped as a whole.
    divided = size if known.privacy == "example" else 1
    # Of arguments given twice, in full or not, the trainer takes the last.
    ours = {
        "--num-nodes": len(found["nodes"]),
        "--topology-name": TOPOLOGY,
        "--method": "corr",
        "--num-iter": found["horizon"] - 1,  # it runs one more
        "--gradient-clip": found["clip"],
        "--sigma": found["sigma_of_sum"] / divided,
        "--sigma-cor": found["sigma_cor_of_sum"] / divided,
        "--epsilon": found["epsilon"],
        "--delta": found["delta"],
        "--privacy": known.privacy,
        "--batch-size": size,
    }
    words = [word for name, value in ours.items() for word in (name, str(value))]
    return [*given, *words], known.privacy, size


def require_participation(node: int, loader: Any, found: dict[str, Any], size: int) -> None:
    """Refuse a node whose examples are in more batches than the design is for."""
    full = len(loader.dataset) // size
    if loader.batch_size != size or not full:
        raise stop(
            f"node {node} has {len(loader.dataset)} examples, in batches of {loader.batch_size}: "
            f"expected at least one of {size}, the same at every step"
        )
    times, allowed = -(-found["horizon"] // full), found["max_participations"]
    if times > allowed:
        raise stop(
            f"node {node} has {full} batches, so that an example is in {times} of "
            f"{found['horizon']} steps, where the design is for {allowed}"
        )


def main() -> None:
    found = numbers_beside()
    given, unit, size = arguments(sys.argv[1:], found)
    if unit == "user" and found["max_participations"] < found["horizon"]:
        raise stop(
            f"a user takes part in all {found['horizon']} steps, and the design is for "
            f"{found['max_participations']}: use --privacy example, or design for every step"
        )
    sys.argv = ["train.py", *given]
    try:
        misc: Any = import_module("misc")
        topology: Any = import_module("utils.topology")
        worker: Any = import_module("worker")
        numpy: Any = import_module("numpy")
        torch: Any = import_module("torch")
        begun, sampled = worker.Worker.__init__, worker.Worker.sample_train_batch
        topologies, _ = topology.topology_names, misc.to_antisymmetric
    except (ImportError, AttributeError) as error:
        raise stop(f"expected DECOR and its packages in {os.getcwd()}, got {error}") from error

    nodes, edges = [0], []

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        begun(self, *args, **kwargs)
        if unit == "example":
            require_participation(nodes[0], self.train_data_loader, found, size)
        nodes[0] += 1

    def whole_batch(self: Any) -> Any:
        while True:
            batch = sampled(self)
            if unit == "user" or len(batch[0]) == size:
                return batch

    def noise_of_edges(tensor: Any, mixing: Any, device: Any) -> Edges:
        if "--seed" not in [word.split("=")[0] for word in given]:
            torch.seed()  # the trainer's own is 1, for everybody
        links = [(int(i), int(j)) for i, j in found["edges"]]
        stddev = float(given[given.index("--sigma-cor") + 1])
        edges.append(Edges(links, size=tensor.shape[-1], stddev=stddev, device=device))
        return edges[0]

    worker.Worker.__init__, worker.Worker.sample_train_batch = begin, whole_batch
    topologies[TOPOLOGY] = lambda nodes: numpy.array(found["mixing"])
    misc.to_antisymmetric, misc.list_neighbors = noise_of_edges, lambda tensor, node: "edges"
    runpy.run_path("train.py", run_name="__main__")
    steps = edges[0].steps if edges else 0
    if steps > found["horizon"]:
        raise stop(f"{steps} steps were run, and the design is for {found['horizon']}")


if __name__ == "__main__":
    main()
