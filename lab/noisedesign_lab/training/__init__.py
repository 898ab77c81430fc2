"""Decentralised SGD in numpy, vectorised over seeds and budgets. Models are float64 arrays of shape
(S, n, E, d): seeds, nodes, lanes, coordinates. Seeds differ in data, batches, start and noise;
lanes of one seed in the noise and the step sizes alone."""
