"""Many problems at once: comparisons of solvers, grids of problems, judged collections."""
