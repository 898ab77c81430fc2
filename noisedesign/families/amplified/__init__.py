"""Strategies without negative entries, as the account of random participation needs."""
