"""Decentralised SGD in numpy; models have shape (S, n, E, d): seeds, nodes, lanes, coordinates."""
