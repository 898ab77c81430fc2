"""Diagonal budgets with caps on diag(X^-1), floors under it, or both."""
