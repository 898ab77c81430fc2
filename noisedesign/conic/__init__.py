"""Programs as linear objectives under matrix inequalities in sparse entries, for solvers and
files."""
