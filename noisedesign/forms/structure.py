"""The structure that a user allows the noise to have, in time and in space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError, describe
from noisedesign.forms.registry import REGISTRY, SPARSE_FORMS, kinds


def _check_kind(owner: TimeStructure | SpaceStructure, *, axes: str, keys: Sequence[str]) -> None:
    """The kind is known; the one number or list it needs is there, and no other of ``keys``."""
    kind, field = owner.kind, f"structure.{axes}"
    _checks.one_of(kind, field=field, allowed=kinds(axes))
    needed = REGISTRY[axes, kind].needs
    for key in keys:
        value, wanted = getattr(owner, key), needed == key
        if wanted == (value is None):
            expected = f'{"a value" if wanted else "nothing"} for {field} = "{kind}"'
            raise InputError(f"structure.{key}", expected=expected, got=describe(value))


@dataclass(frozen=True, kw_only=True)
class TimeStructure:
    """Structure of the strategy C, lower triangular, shape (T, T).

    - ``dense``: none;
    - ``banded``: ``bands`` diagonals of C, the main one counted;
    - ``toeplitz``: constant along diagonals;
    - ``banded-inverse``: C Toeplitz, C^-1 with ``bands`` diagonals;
    - ``blt``: buffered linear Toeplitz with ``buffers`` buffers, all positive;
    - ``signed-toeplitz``, ``signed-blt``: these with coefficients or buffers of any sign, also
      buffers that oscillate in pairs, under (k, b) participation.

    Args:
        kind: one of these.
        bands: of "banded" and "banded-inverse", at least 1.
        buffers: of "blt" and "signed-blt", at least 1.
        nonnegative: whether no entry of C is negative, which the account of random participation
            needs. None: only there, where problems set it.

    Raises:
        InputError: an unknown kind; ``bands`` or ``buffers`` missing, below 1, or out of place.

    Examples:
        With one band C is the identity: independent noise, whose error in prefix sums of two steps
        is 1 + 2.

        >>> import noisedesign as nd
        >>> structure = nd.TimeStructure(kind="banded", bands=1)
        >>> print(structure)
        banded (1)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, structure=structure)
        >>> print(f"{nd.solve(problem).design.objective:.4f}")
        3.0000
    """

    kind: str = "dense"
    bands: int | None = None
    buffers: int | None = None
    nonnegative: bool | None = None

    def __post_init__(self) -> None:
        _check_kind(self, axes="time", keys=("bands", "buffers"))
        for key in ("bands", "buffers"):
            if getattr(self, key) is not None:
                _checks.positive_int(getattr(self, key), field=f"structure.{key}")
        if self.nonnegative is not None:
            _checks.flag(self.nonnegative, field="structure.nonnegative")

    @property
    def restricts(self) -> bool:
        """Whether some strategy is not of this structure."""
        return self.kind != "dense" or bool(self.nonnegative)

    @property
    def family_kind(self) -> str:
        """The kind of its family in :mod:`noisedesign.forms.registry`."""
        return "nonnegative" if self.nonnegative else self.kind

    def __str__(self) -> str:
        size = self.bands or self.buffers
        words = self.kind if size is None else f"{self.kind} ({size})"
        return f"{words}, nonnegative" if self.nonnegative else words


@dataclass(frozen=True, kw_only=True)
class SpaceStructure:
    """Structure of the covariance R: which nodes may share a seed.

    - ``dense``: any nodes;
    - ``edge-local``: the two ends of an edge, one pairwise seed each;
    - ``hops``: any two nodes at most ``hops`` edges apart;
    - ``neighbourhood``: a node and its neighbours, together;
    - ``clusters``: the nodes of a cluster, together;
    - ``decor``: the two ends of an edge, all edges by one coefficient (DECOR);
    - ``independent``: no two nodes;
    - ``polynomial``: any nodes; R^-1 is a polynomial of W^T W but for weights of the nodes, so that
      nothing is of n x n numbers. It stands for ``dense`` on large graphs, and is near the optimum;
    - ``pairwise``: the two ends of an edge, with covariances that four numbers say for all edges.
      It stands for ``edge-local`` on large graphs, and is near the optimum of that.

    Args:
        kind: one of these.
        hops: of "hops", at least 1.
        clusters: of "clusters": the number of the cluster of every node.
        known_seeds: f: the budgets hold even against any f nodes that pool the seeds they hold
            (SecLDP); 0 for kinds whose seeds sets of nodes do not share.

    Raises:
        InputError: an unknown kind; ``hops`` or ``clusters`` missing, not valid, or out of place;
            ``known_seeds`` out of place.

    Examples:
        Independent noise on a ring of four has the error tr(W^T W) = 1 + 3/9.

        >>> import noisedesign as nd
        >>> ring = nd.build_graph("ring", nodes=4)
        >>> structure = nd.SpaceStructure(kind="independent")
        >>> problem = nd.SpaceProblem.from_graph(ring, structure=structure)
        >>> print(f"{nd.solve(problem).design.objective:.4f}")
        1.3333
    """

    kind: str = "dense"
    hops: int | None = None
    clusters: tuple[int, ...] | None = None
    known_seeds: int = 0

    def __post_init__(self) -> None:
        _check_kind(self, axes="space", keys=("clusters", "hops"))
        if self.hops is not None:
            _checks.positive_int(self.hops, field="structure.hops")
        if self.clusters is not None:
            expected = "a list of the number of the cluster of every node"
            clusters = _checks.listed(self.clusters, field="structure.clusters", expected=expected)
            for node, cluster in enumerate(clusters):
                if isinstance(cluster, bool) or not isinstance(cluster, int):
                    got = f"{describe(cluster)} for node {node}"
                    expected = "an integer for every node"
                    raise InputError("structure.clusters", expected=expected, got=got)
            object.__setattr__(self, "clusters", tuple(clusters))
        _checks.positive_int(self.known_seeds, field="structure.known_seeds", minimum=0)
        if self.known_seeds and not REGISTRY["space", self.kind].seeds:
            expected = f'0 for structure.space = "{self.kind}"'
            got = str(self.known_seeds)
            remedy = "Its seeds are shared by all, or all alike; use edge-local or another kind."
            raise InputError("structure.known_seeds", expected=expected, got=got, remedy=remedy)

    @property
    def restricts(self) -> bool:
        """Whether some covariance is not of this structure."""
        return self.kind != "dense"

    @property
    def sparse(self) -> bool:
        """Whether W is taken as a sparse array."""
        return REGISTRY["space", self.kind].sparse

    def for_large(self) -> SpaceStructure | None:
        """The structure that stands for it on graphs that are too large for n x n arrays.

        Returns:
            That structure, or None where there is none.
        """
        if self.sparse:
            return self
        kind = SPARSE_FORMS.get(self.kind)
        return None if kind is None else replace(self, kind=kind)

    def __str__(self) -> str:
        words = self.kind if self.hops is None else f"hops ({self.hops})"
        return words + (f", {self.known_seeds} with known seeds" if self.known_seeds else "")
