"""Published results as baselines: bounds, figures and experiments."""
