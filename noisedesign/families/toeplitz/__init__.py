"""Strategies for long horizons: Toeplitz, banded inverse and buffered linear Toeplitz."""
