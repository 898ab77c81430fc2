"""Strategies for long horizons: Toeplitz, banded inverse and buffered linear Toeplitz.

A T x T strategy costs O(T^3) to design and O(T^2) to hold. The lower triangular Toeplitz ones are
designed in O(T log T) a step (:mod:`.solver`) and make their noise from a few vectors
(:mod:`noisedesign.program.noise.strategies`). They are a few per cent worse than the unrestricted
optimum, and each says by how much at most (:mod:`.bound`).
"""
