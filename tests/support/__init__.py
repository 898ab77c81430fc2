"""What tests share: oracles that know nothing of the library, cases, readers, the command line."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
