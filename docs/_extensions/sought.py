"""What people look for in other words than those of a title, and the page that answers it."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

SOUGHT = {
    "accounts": ("composition", "conversion", "renyi"),
    "guarantees": ("threat model", "what is assumed"),
    "guides/cluster": ("dask", "slurm", "kubernetes", "several machines"),
    "guides/data": ("data set", "facebook", "movielens"),
    "guides/deploy-and-rehearse": ("deployment", "secret"),
    "guides/dropout": ("node failure", "dropout"),
    "guides/jax": ("jax", "optax", "jax privacy"),
    "guides/large-problems": ("large graph", "memory", "sparse"),
    "guides/ledger": ("several runs", "privacy budget"),
    "guides/mixing-weights": ("weighted graph", "edge weights", "mixing matrix"),
    "guides/noise-in-my-own-loop": ("training loop", "resume", "checkpoint", "interrupted run"),
    "guides/random-participation": ("random batches", "amplification", "shuffling", "poisson"),
    "guides/which-design": ("batch size", "records", "best noise", "choose a design"),
    "guides/seeds-without-a-dealer": ("shared seed", "trusted party", "pairwise noise"),
    "guides/noisy-updates": ("federated learning", "gossipy", "fedml"),
    "guides/keras": ("keras", "tensorflow", "tensorflow privacy"),
    "guides/trainers": ("pytorch", "opacus", "flower", "ddp"),
    "guides/whole-deployment": ("tls", "certificate", "docker", "soak test", "transcript"),
    "guides/who-sees-what": ("observer", "eavesdropper", "honest-but-curious", "coalition"),
    "tutorial": ("first steps", "getting started"),
}


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    """Main entries of the index, below the title: the search finds them before words of a text."""
    if name not in app.config.sought:
        return
    title, line, text = source[0].partition("\n")
    entries = "".join(f"   ! single: {phrase}\n" for phrase in app.config.sought[name])
    source[0] = f"{title}\n\n```{{eval-rst}}\n.. index::\n{entries}```\n{line}{text}"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("sought", SOUGHT, "env")  # pages are read again when it changes
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
