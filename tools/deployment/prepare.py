"""The files that the two clusters beside this mount: plans, data, identities and addresses.

``python tools/deployment/prepare.py design.npz data.npz OUT --hosts a.example b.example`` writes
OUT/cluster-a and OUT/cluster-b, a compose file in each. It is a rehearsal: who runs it sees all
data and identities. Owners of nodes make their own, `noisedesign-node identity FOLDER`, and give
away certificates alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np

import noisedesign as nd
from noisedesign.design.design import design_of
from noisedesign.noise import Identity
from noisedesign.noise.node.links import certificate
from noisedesign.noise.node.training import Examples
from noisedesign.tasks.deploy import deploy, partition

HERE = Path(__file__).resolve().parent
CLUSTERS = {"cluster-a": range(8), "cluster-b": range(8, 15)}
INSIDE, OUTSIDE = 7000, 7000  # the port of every container, and the first of a host


def prepare(design: Path, data: Path, out: Path, hosts: list[str]) -> None:
    """Write the folder of every cluster."""
    plans = deploy(design_of(nd.load(design)), out / "plans")
    parts = partition(Examples.load(data), len(plans))
    people = [Identity.new() for _ in plans]
    for name, nodes in CLUSTERS.items():
        folder = out / name
        (folder / "identities").mkdir(parents=True)
        shutil.copy(HERE / name / "compose.yaml", folder)
        for u, one in enumerate(people):
            (folder / f"identities/{u}.pem").write_bytes(certificate(one))
        for u in nodes:
            shutil.copy(plans[u].path, folder / f"{u:02d}.plan")
            shown = {"features": parts[u].features[:, :-1], "labels": parts[u].labels}
            np.savez(folder / f"{u:02d}.npz", **shown)
            people[u].save(folder / f"{u:02d}.identity")
        (folder / "peers.json").write_text(json.dumps(addresses(name, hosts), indent=1))


def addresses(cluster: str, hosts: list[str]) -> dict[str, str]:
    """List all nodes as one cluster sees them: its own by their names, the others by host."""
    found = {}
    for (name, nodes), host in zip(CLUSTERS.items(), hosts, strict=True):
        for u in nodes:
            inside = f"node-{u:02d}:{INSIDE}"
            found[str(u)] = inside if name == cluster else f"{host}:{OUTSIDE + u}"
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("design", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--hosts", nargs=2, metavar=("A", "B"), required=True)
    given = parser.parse_args()
    prepare(given.design, given.data, given.out, given.hosts)
