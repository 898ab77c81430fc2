"""Strategies without negative entries, as the account of records that take part at random needs:
the best that a search (:mod:`.solver`) finds, and a bound on all linear mechanisms (:mod:`.bound`).
"""
