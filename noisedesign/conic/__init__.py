"""The program as a linear objective under linear matrix inequalities, in sparse entries.

Stated once, for the conic backends and for files alike: ``program`` is the data, ``standard`` the
formulations of the literature, ``balanced`` the one that solvers find easiest.
"""
