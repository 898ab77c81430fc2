"""Two clusters of containers, as compose files: what they say, and their commands run as processes
of this machine, with everything that they mount."""

import json
import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import yaml

import noisedesign as nd
from noisedesign.noise.node.__main__ import main
from tests.support import ROOT

FOLDER = ROOT / "tools" / "deployment"
PREPARE = runpy.run_path(str(FOLDER / "prepare.py"))
CLUSTERS = ("cluster-a", "cluster-b")
HOSTS = ["a.example", "b.example"]
Service = dict[str, Any]


@cache
def composed(folder: Path) -> Any:
    """What the compose file says, which takes a moment to read."""
    return yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))


def services(folder: Path) -> dict[int, Service]:
    """Of one cluster, by node."""
    said = composed(folder)
    return {int(name.removeprefix("node-")): one for name, one in said["services"].items()}


def mounts(folder: Path, service: Service, volumes: Path) -> dict[str, Path]:
    """Paths in the container, and what is there: files beside the compose file, and volumes."""
    said, found = composed(folder), {}
    for one in service["volumes"]:
        source, target, *rest = one.split(":")
        if source.startswith("./"):
            assert rest == ["ro"]
            found[target] = folder / source
        else:
            assert source in said["volumes"]
            found[target] = volumes / source
    for secret in service["secrets"]:
        found[f"/run/secrets/{secret['target']}"] = (
            folder / said["secrets"][secret["source"]]["file"]
        )
    assert set(service["networks"]) <= said["networks"].keys()
    return found


def localized(command: list[str], there: dict[str, Path]) -> list[str]:
    """The command with what is mounted, as far as a word is a path or has one behind "="."""

    def local(word: str) -> str:
        option, equals, value = word.rpartition("=")
        return f"{option}{equals}{there[value]}" if value in there else word

    return [local(word) for word in command]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifteen families with seeds of every edge, four steps, and a few records each."""
    folder = tmp_path_factory.mktemp("clusters")
    graph = nx.florentine_families_graph()
    problem = nd.SpaceProblem(
        name="florentine",
        mixing=nd.mixing_matrix(graph),
        nodes=tuple(graph),
        structure=nd.SpaceStructure(kind="edge-local"),
        participation=nd.participation.BallsInBins(epochs=2, separation=2),
        privacy=nd.PrivacyTarget(epsilon=4.0, delta=1e-5, clip=1.0),
    )
    design = nd.solve(problem).design
    assert design is not None
    nd.save(design, folder / "d.npz")
    generator = np.random.default_rng(1)
    features = generator.standard_normal((90, 3))
    np.savez(folder / "d-data.npz", features=features, labels=(features[:, 0] > 0).astype(float))
    PREPARE["prepare"](folder / "d.npz", folder / "d-data.npz", folder, HOSTS)
    return folder


def test_every_service_has_what_its_command_needs(prepared: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    for cluster in CLUSTERS:
        folder = prepared / cluster
        for u, service in services(folder).items():
            seen.append(u)
            there = mounts(folder, service, tmp_path)
            paths = [word.rpartition("=")[2] for word in service["command"]]
            named = {path for path in paths if path.startswith("/")}
            assert named == set(there)
            for path in named - {"/kept"}:
                assert there[path].exists(), path
            secret = there["/run/secrets/identity"]
            assert secret.stat().st_mode & 0o777 == 0o600
            assert secret.name == f"{u:02d}.identity"
            (port,) = service["ports"]
            assert port == f"{7000 + u}:7000"
            assert service["read_only"] is True
            assert service["user"] == "10001"
            # A folder of its own, which no other service has.
            assert there["/kept"].name == f"kept-{u:02d}"
    assert seen == list(range(15))


def test_addresses_are_those_of_services_and_ports(prepared: Path) -> None:
    for cluster, host in zip(CLUSTERS, reversed(HOSTS), strict=True):
        known = json.loads((prepared / cluster / "peers.json").read_text())
        own = services(prepared / cluster)
        assert set(known) == {str(u) for u in range(15)}
        for u, address in known.items():
            inside = f"node-{int(u):02d}:7000"
            assert address == (inside if int(u) in own else f"{host}:{7000 + int(u)}")


def test_containers_without_identities_do_not_talk(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is forgotten in a compose file is refused, and not left out."""
    folder = prepared / "cluster-a"
    service = services(folder)[0]
    command = localized(service["command"], mounts(folder, service, tmp_path))
    left = [word for word in command if not word.startswith("--identit")]
    assert main(left) == 2
    assert "listen: expected an address of this machine, or identities" in capsys.readouterr().err


def test_the_image_has_the_wheel_of_the_runtime_and_nothing_else() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    assert "pip wheel --no-deps --wheel-dir /wheels ./tools/runtime" in text
    last = text.rpartition("FROM ")[2]
    assert re.findall(r"^COPY (.*)$", last, flags=re.M) == ["--from=wheel /wheels /wheels"]
    assert 'ENTRYPOINT ["noisedesign-node"]' in last
    assert "USER node" in last
    for source in copied(text):
        assert (ROOT / source).exists()


def copied(text: str) -> list[str]:
    """What the first stage takes of the repository."""
    lines = re.findall(r"^COPY (?!--from)(.*)$", text, flags=re.M)
    return [word for line in lines for word in shlex.split(line)[:-1]]


@pytest.mark.slow
def test_the_wheel_is_built_of_what_is_copied(tmp_path: Path) -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    for source in copied(text):
        target = tmp_path / "source" / source
        target.parent.mkdir(parents=True, exist_ok=True)
        there = ROOT / source
        if there.is_dir():
            shutil.copytree(there, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(there, target)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    options = ["--no-index", "--wheel-dir", str(tmp_path / "wheels"), "./tools/runtime"]
    subprocess.run([*command, *options], cwd=tmp_path / "source", check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert wheel.name.startswith("noisedesign_runtime-")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="modes of files are of POSIX systems")
def test_both_clusters_train_together(prepared: Path, tmp_path: Path) -> None:
    """Every service's command, on this machine: names of hosts and ports become those here."""
    ports, running = {}, []
    for u in range(15):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports[u] = free.getsockname()[1]
    here = {str(u): f"127.0.0.1:{port}" for u, port in ports.items()}
    try:
        for cluster in CLUSTERS:
            folder = prepared / cluster
            for u, service in services(folder).items():
                there = mounts(folder, service, tmp_path)
                there["/peers.json"] = tmp_path / "peers.json"
                there["0.0.0.0:7000"] = Path(here[str(u)])
                command = localized(service["command"], there)
                (tmp_path / "peers.json").write_text(json.dumps(here))
                running.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "noisedesign.noise.node", *command],
                        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                )
        deadline = time.monotonic() + 300
        for process in running:
            out, err = process.communicate(timeout=deadline - time.monotonic())
            assert (process.returncode, err) == (0, "")
            assert "4 steps, (4, 1e-05)-DP" in out
    finally:
        for process in running:
            process.kill()
            process.communicate()
    folders = [tmp_path / f"kept-{u:02d}" for u in range(15)]
    assert all((folder / "transcript.jsonl").exists() for folder in folders)
    assert all((folder / "secret").stat().st_mode & 0o777 == 0o600 for folder in folders)
