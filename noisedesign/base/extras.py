"""Packages that an extra of this distribution brings, and that few commands need."""

from __future__ import annotations

from importlib.util import find_spec

from noisedesign.base.checks import InputError

EXTRAS = {  # package -> the extra that brings it
    "distributed": "dask",
    "jinja2": "pages",
    "joblib": "parallel",
    "matplotlib": "pictures",
    "pooch": "data",
    "pyarrow": "parquet",
    "safetensors": "safetensors",
}


def need(package: str, *, field: str) -> None:
    """Refuse what takes a package that is not installed, and name its extra."""
    if find_spec(package) is None:
        remedy = f"pip install 'noisedesign[{EXTRAS[package]}]'"
        raise InputError(field, expected=f"the package {package}", got="none", remedy=remedy)
