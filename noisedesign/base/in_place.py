"""Decompositions in the memory of their argument.

NumPy's keep the argument, work on a copy of it and copy the result out: two arrays more, where a
large problem has room for eight in all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from noisedesign.base.device import DeviceArray, cholesky_of, namespace


def eigh(a: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Ascending eigenvalues, shape (n,), and orthonormal basis of a symmetric matrix.

    Args:
        a: shape (n, n), of any array library; on the CPU it is overwritten with the basis.

    Raises:
        numpy.linalg.LinAlgError: no convergence, or an entry that is no number.
    """
    if not isinstance(a, np.ndarray):
        values, basis = namespace(a).linalg.eigh(a)
        return values, basis
    # LAPACK wants columns; the transpose of a symmetric matrix in rows is one in columns.
    found: Any = scipy.linalg.eigh(a.T, driver="evd", overwrite_a=True, check_finite=False)
    return found[0], found[1]


def cholesky(a: DeviceArray) -> DeviceArray:
    """Lower triangular L, shape (n, n), with L L^T = a; on the CPU it takes the place of a.

    Raises:
        numpy.linalg.LinAlgError: a is not positive definite.
    """
    if not isinstance(a, np.ndarray):
        return cholesky_of(a)
    upper = scipy.linalg.cholesky(a.T, lower=False, overwrite_a=True, check_finite=False)
    return np.asarray(upper.T)
