"""How large the conic model of a program is, told without building it."""

from __future__ import annotations

from dataclasses import dataclass

from noisedesign.conic.program import triangle


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """``variables`` counts unknowns; ``blocks`` holds the rows of every matrix inequality."""

    variables: int
    blocks: tuple[int, ...]

    @property
    def entries(self) -> int:
        """Entries of all blocks, one of each pair."""
        return sum(map(triangle, self.blocks))

    @property
    def entry_pairs(self) -> int:
        """Pairs of entries of one block: what interior points couple with each other."""
        return sum(triangle(rows) ** 2 for rows in self.blocks)


def model_size(
    size: int, *, epochs: int, rank: int, formulation: str, limited: bool, parts: int
) -> ModelSize:
    """The model of a program in one of the formulations of the conic backends.

    Args:
        size: m, the number of coordinates; ``epochs`` of them belong to one pattern.
        rank: of H; the error Y has as many rows.
        limited: whether variances are limited, which turns "compact" into "covariance".
        parts: how many inequalities "balanced" is cut into.
    """
    if formulation == "paper":
        return ModelSize(variables=triangle(size) + 1, blocks=(size, *(size + 1,) * size))
    if formulation == "covariance" or (formulation == "compact" and limited):
        return ModelSize(variables=2 * triangle(size), blocks=(2 * size,))
    error = size if limited else rank
    parts = min(parts, error) if formulation == "balanced" else 1
    cuts = [len(range(first, error, parts)) for first in range(parts)] or [0]
    vanishing = size // epochs * triangle(epochs - 1)
    return ModelSize(
        variables=sum(map(triangle, cuts)) + triangle(size) - vanishing,
        blocks=tuple(size + cut for cut in cuts),
    )
