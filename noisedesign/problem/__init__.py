"""The problem that is asked: its fields, budgets of pairs, and how much noise a target needs."""
