"""Design files that claim what is not so, by name: what a judge has to refuse.

Every one of them is false, of a design that is near its optimum: a number, a privacy, a problem or
a bound that the noise in the file has not. Seals and digests are right unless they are the forgery.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.support.small_designs import seal

Arrays = dict[str, np.ndarray]
Edit = Callable[[dict[str, Any], Arrays], None]
Members = list[tuple[str, bytes]]

PROBLEM = {"mixing", "mixing_data", "gram", "budget", "max_variance", "min_variance"}
PROBLEM |= {"workload_factor"}
"""Arrays that state a problem."""

PROOF = ("dual_", "observer_", "pattern_", "unrestricted_", "lanczos_", "spectral_")
"""What the names of arrays begin with that prove a bound."""

SEEN = {"noising_matrix", "mixing_indices", "mixing_indptr", "seed_nodes"}
"""Arrays that are neither, and no noise by themselves."""

OF_VARIANCE = {"covariance": 1, "clique_blocks": 1, "noising_coefficients": 0.5}
OF_VARIANCE |= {"own_shares": 0.5, "seed_shares": 0.5, "mode_strategies": -0.5, "strategy": -0.5}
OF_VARIANCE |= {"strategy_bands": -0.5, "strategy_coefficients": -0.5, "noising_matrix": 0.5}
"""The power of the variance that arrays of noise grow with."""


# --- files as bytes -------------------------------------------------------------------------------


def members_of(content: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def packed(members: Members, *, how: int = zipfile.ZIP_STORED) -> bytes:
    """A sealed archive of members, of which two may have the same name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=how)
        archive.comment = b"noisedesign-sha256:" + b"0" * 64
    return seal(buffer.getvalue()[:-64])


def opened(content: bytes) -> tuple[dict[str, Any], Arrays]:
    """The manifest and the arrays of a file."""
    members = dict(members_of(content))
    manifest = json.loads(members.pop("manifest.json"))
    return manifest, {
        name.removesuffix(".npy"): np.load(io.BytesIO(array)) for name, array in members.items()
    }


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=array.dtype.hasobject)
    return buffer.getvalue()


def written(manifest: dict[str, Any], arrays: Arrays) -> bytes:
    """The file of a manifest and arrays, with their shapes and digests."""
    known = manifest["arrays"]
    for name, array in arrays.items():
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        own = {"shape": list(array.shape), "sha256": digest}
        known[name] = {"kind": "?", "dtype": "float64"} | known.get(name, {}) | own
    manifest["arrays"] = {name: entry for name, entry in known.items() if name in arrays}
    members = [(f"{name}.npy", npy(array)) for name, array in arrays.items()]
    return packed([("manifest.json", json.dumps(manifest).encode()), *members])


# --- edits ----------------------------------------------------------------------------------------


def put(key: str, value: Any) -> Edit:
    """That sets a key of the manifest, dotted for those inside."""

    def edit(manifest: dict[str, Any], arrays: Arrays) -> None:
        *path, last = key.split(".")
        for step in path:
            manifest = manifest[step]
        if last not in manifest:
            raise KeyError(key)
        manifest[last] = value(manifest[last]) if callable(value) else value

    return edit


def array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    """That changes an array."""

    def edit(manifest: dict[str, Any], arrays: Arrays) -> None:
        arrays[name] = np.asarray(change(arrays[name].copy()), dtype=np.float64)

    return edit


def all_of(*edits: Edit) -> Edit:
    def edit(manifest: dict[str, Any], arrays: Arrays) -> None:
        for one in edits:
            one(manifest, arrays)

    return edit


def first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    """That sets the entry of an array that is largest."""

    def change(a: np.ndarray) -> np.ndarray:
        a.flat[np.abs(a).argmax()] = value
        return a

    return change


def with_gap(manifest: dict[str, Any], arrays: Arrays) -> None:
    """The gap is what objective and bound say it is."""
    manifest["gap"] = manifest["objective"] / manifest["lower_bound"] - 1


def bound_above(manifest: dict[str, Any], arrays: Arrays) -> None:
    """A bound above the objective, of noise that is feasible."""
    manifest["lower_bound"] = manifest["objective"] * (1 + 1e-4)
    with_gap(manifest, arrays)


def less_noise(manifest: dict[str, Any], arrays: Arrays) -> None:
    """A tenth of the variance less, and all claims with it: only the sensitivity is another."""
    for name, power in OF_VARIANCE.items():
        if name in arrays and (power == 1 or "covariance" not in arrays):
            arrays[name] *= 0.9**power
    for key in ("objective", "lower_bound", "unrestricted_lower_bound"):
        if manifest[key] is not None:
            manifest[key] *= 0.9


CLAIMS: dict[str, Edit] = {
    "objective lower": all_of(put("objective", lambda x: 0.999 * x), with_gap),
    "objective higher": all_of(put("objective", lambda x: 1.001 * x), with_gap),
    "squared error lower": put("squared_error", lambda x: 0.999 * x),
    "squared error higher": put("squared_error", lambda x: 1.001 * x),
    "squared sensitivity halved": put("squared_sensitivity", lambda x: x / 2),
    "squared sensitivity not a number": put("squared_sensitivity", "nan"),
    "squared sensitivity of another kind": put("sensitivity_kind", "scalar-exact"),
    "error and objective lower": all_of(
        put("squared_error", lambda x: 0.9 * x), put("objective", lambda x: 0.9 * x)
    ),
    "sensitivity and objective lower": all_of(
        put("squared_sensitivity", lambda x: 0.9 * x), put("objective", lambda x: 0.9 * x)
    ),
    "bound of all strategies doubled": put("lower_bound_of_unrestricted_optimum", lambda x: 2 * x),
    "bound of all strategies infinite": put("lower_bound_of_unrestricted_optimum", "inf"),
    "bound of all strategies not a number": put("lower_bound_of_unrestricted_optimum", "nan"),
    "of another form": put("strategy", "banded-inverse"),
    "stopped otherwise": put("stop", "never"),
    "objective not a number": put("objective", "nan"),
    "objective in words": put("objective", "small"),
    "objective and bound lower": all_of(
        put("objective", lambda x: 0.9 * x), put("lower_bound", lambda x: 0.9 * x)
    ),
    "bound above the objective": bound_above,
    "bound infinite": all_of(put("lower_bound", "inf"), put("gap", -1.0)),
    "bound not a number": put("lower_bound", "nan"),
    "gap negative": put("gap", -1e-3),
    "gap not a number": put("gap", "nan"),
    "gap of another sign and bound": all_of(bound_above, put("gap", 1e-4)),
    "sensitivity halved": put("sensitivity.value", lambda x: x / 2),
    "sensitivity zero": put("sensitivity.value", 0.0),
    "sensitivity not a number": put("sensitivity.value", "nan"),
    "sensitivity not squared": put("sensitivity.squared", False),
    "sensitivity of another kind": put("sensitivity.which", "scalar-exact"),
    "infeasible": put("feasible", False),
    "of nobody": put("trust", "nobody"),
    "of another name": all_of(put("problem.text", str), put("name", "another")),
    "at other budgets": put("budget", "noise of unit variance"),
    "of another array": put("matrix", "mixing"),
    "of more steps": put("horizon", lambda x: (x or 1) + 1),
    "of other nodes": put("nodes", lambda x: x[::-1] or ["a"]),
    "of fewer nodes": put("nodes", lambda x: x[1:] or ["a", "b"]),
    "of more rounds": put("rounds", lambda x: x + 1),
    "of a random W": put("random", {"kind": "edge-failure", "probability": 0.5, "matchings": None}),
    "of another error": put("error", {"horizon": 7, "of": "last-iterate"}),
    "of another workload": put("workload", lambda x: "gram" if x == "prefix" else "prefix"),
    "along other axes": put("design", lambda x: "space" if x == "time" else "time"),
    "of another participation": put(
        "participation", {"separation": 1, "epochs": 1, "horizon": None, "max_participations": None}
    ),
    "of random participation": put(
        "participation", {"kind": "balls-in-bins", "separation": 9, "epochs": 7}
    ),
    "of more epsilon": put("privacy.epsilon", lambda x: x * 2),
    "of less epsilon": put("privacy.epsilon", lambda x: x / 2),
    "of less delta": put("privacy.delta", lambda x: x / 1000),
    "of another clip": put("privacy.clip", lambda x: x / 10),
    "of other steps": put("privacy.steps", lambda x: (x or 8) // 2),
    "of another adjacency": all_of(
        put("privacy.adjacency", "zero-out"), put("adjacency", "zero-out")
    ),
    "of two adjacencies": put("adjacency", "add-remove"),
    "of another conversion": put("privacy.conversion", "rdp"),
    "of no privacy": all_of(put("privacy", None), put("adjacency", None)),
    "of a structure": put(
        "structure",
        lambda x: None if x else {"time": "dense", "space": "edge-local", "known_seeds": 0},
    ),
    "of all structures": put("unrestricted_lower_bound", lambda x: 2 * (x or 1e9)),
    "of a fixed bound": put("fixed_lower_bound", lambda x: 2 * (x or 1e9)),
    "with confidence": put("confidence", lambda x: 0.5 if x is None else 1.0),
    "with uncertainty": put("uncertainty", lambda x: 0.5 if x is None else 0.0),
    "with caps": put("variance_ratio", lambda x: (x or 1.0) / 2),
    "with floors": put("floor_ratio", lambda x: (x or 1.0) / 2),
    "of another format": put("format", "noisedesign-models"),
    "of version 99": put("version", 99),
    "of version true": put("version", True),
    "account of less epsilon": put("account.epsilon", lambda x: x / 2),
    "account of less removal": put("account.remove", lambda x: x / 2),
    "account of less addition": put("account.add", lambda x: x / 2),
    "account of less delta": put("account.delta", lambda x: x / 2),
    "account of a better estimate": put("account.epsilon_estimate", 1e-3),
    "account of another proof": put("account.which", "exact"),
    "account with confidence": put("account.confidence", lambda x: 0.5 if x is None else 1.0),
    "account of another adjacency": put("account.adjacency", "zero-out"),
    "no account": put("account", lambda x: None if x else {"epsilon": 0.1}),
    "of a library of numbers": put("library", 4),
    "with a key more": lambda manifest, _: manifest.update(guarantee="epsilon 0"),
    "with observers": put(
        "observers", lambda x: x[1:] or [{"model": "pndp", "sees": "received", "coalition": [0]}]
    ),
    "with another text": put("problem", {"text": 'name = "b"\ndesign = "space"\n', "sha256": ""}),
    "with no TOML": put("problem", {"text": "[", "sha256": hashlib.sha256(b"[").hexdigest()}),
    "less noise": less_noise,
}


def of_text(text: str) -> Iterator[tuple[str, Edit]]:
    """That state another problem by a text with its digest."""
    for old, new in (
        ('kind = "path"', 'kind = "star"'),
        ('kind = "ring"', 'kind = "complete"'),
        ("nodes = ", "nodes = 1"),
        ("tau = [", "tau = [2"),
        ("epsilon = ", "epsilon = 1"),
        ("max_variance = ", "max_variance = 1"),
        ("separation = ", "separation = 1"),
        ('kind = "prefix"', 'kind = "decentralized"'),
        ("epochs = ", "epochs = 1"),
    ):
        if old in text:
            other = text.replace(old, new)
            digest = hashlib.sha256(other.encode()).hexdigest()
            yield f"text: {new}", put("problem", {"text": other, "sha256": digest})


def of_arrays(arrays: Arrays) -> Iterator[tuple[str, Edit]]:
    """That are about arrays."""
    for name, a in arrays.items():
        if name.startswith(PROOF):
            for words, change in (
                ("bent", lambda a: a * np.linspace(1, 3, a.size).reshape(a.shape)),
                ("not numbers", lambda a: np.full_like(a, np.nan)),
                ("zero", np.zeros_like),
                ("negative", lambda a: -a),
                ("of another shape", lambda a: a[:-1]),
            ):
                yield f"{name} {words}", all_of(array(name, change), bound_above)
        elif name in PROBLEM:
            yield f"{name} times ten", array(name, lambda a: 10 * a)
            yield f"{name} over four", array(name, lambda a: a / 4)
            yield f"{name} by rows backwards", array(name, lambda a: a[::-1] + (a == a[0]) * 1e-3)
        elif name not in SEEN:
            yield f"{name} halved", array(name, lambda a: a / 2)
            yield f"{name} doubled", array(name, lambda a: a * 2)
            yield f"{name} zero", array(name, np.zeros_like)
        if not name.startswith(PROOF) and name not in SEEN:
            if name != "workload_factor":  # which is not needed
                yield f"{name} left out", lambda _, arrays, name=name: arrays.pop(name)
            yield f"{name} with an entry more", array(name, lambda a: np.append(a, a.flat[:1]))
            yield f"{name} not a number", array(name, first(np.nan))
            yield f"{name} huge", array(name, first(1e300))
            yield f"{name} infinite", array(name, first(np.inf))
    for name, size in (("dual_cap", 1), ("budget", 1), ("secret", 3), ("covariance", 2)):
        if name not in arrays:
            more = np.full(size, 100.0)
            yield f"with {name}", lambda _, held, name=name, more=more: held.update({name: more})
    if "noising_matrix" in arrays:
        yield "noising matrix over ten", array("noising_matrix", lambda a: a / 10)
        yield "strategy not causal", array("strategy", lambda a: a + 1e-3 * np.triu(a + 1, 1))


def forged(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Every forgery of an honest file that applies to it, and the file."""
    manifest, arrays = opened(content)
    edits = {
        **CLAIMS,
        **dict(of_text(manifest.get("problem", {}).get("text", ""))),
        **dict(of_arrays(arrays)),
    }
    honest = json.dumps(manifest), {name: a.tobytes() for name, a in arrays.items()}
    for name, edit in edits.items():
        said, held = json.loads(honest[0]), {key: a.copy() for key, a in arrays.items()}
        try:
            edit(said, held)
        except (KeyError, TypeError):  # what it is about is not in this file
            continue
        if (json.dumps(said), {key: a.tobytes() for key, a in held.items()}) != honest:
            yield name, written(said, held)
    yield from damaged(content)


def damaged(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Files that are read in two ways, or not at all."""
    manifest, *arrays = members_of(content)
    name, numbers = arrays[0]
    own = [manifest, *arrays[1:]]
    text = manifest[1].decode()
    doubled = text.replace('"objective":', '"objective": 0.1, "objective":', 1)
    other = json.loads(text)
    other["arrays"][name.removesuffix(".npy")]["sha256"] = "0" * 64
    a = np.load(io.BytesIO(numbers))
    yield "a broken seal", content[:-1] + (b"0" if content[-1:] != b"0" else b"1")
    yield "a seal less", content[:-64]
    yield "cut", content[: len(content) // 2]
    yield "a manifest twice", packed([manifest, *arrays, manifest])
    yield "a key twice", packed([("manifest.json", doubled.encode()), *arrays])
    yield "a member more", packed([manifest, *arrays, ("readme.txt", b"private")])
    yield "an array less", packed(own)
    yield "another digest", packed([("manifest.json", json.dumps(other).encode()), *arrays])
    yield "no manifest", packed(arrays)
    yield "a manifest of a list", packed([("manifest.json", b"[1]"), *arrays])
    yield "compressed", packed([manifest, *arrays], how=zipfile.ZIP_DEFLATED)
    yield "something after an array", packed([*own, (name, numbers + b"0" * 8)])
    for kind in ("<f4", ">f8", object):
        yield f"numbers of {kind}", packed([*own, (name, npy(a.astype(kind)))])
    if a.ndim == 2 and len(a) > 1:
        yield "numbers by columns", packed([*own, (name, npy(np.asfortranarray(a)))])
