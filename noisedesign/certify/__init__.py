"""Whether a design is what it claims to be: the program, its dual and every rounding, in NumPy."""
