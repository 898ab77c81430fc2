"""Training under a mechanism: its noise, scaled to a privacy budget, and what it does to a loss."""
