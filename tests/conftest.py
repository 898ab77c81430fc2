"""Settings every test runs under."""

import gc
import os
import sys

# The matrices of the tests are small: a second BLAS thread only waits for the first. It has to be
# said before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# pytest takes the asserts of every file apart, which is most of the time that it needs to find the
# tests. What it makes of them is kept even where the environment has Python keep nothing.
sys.dont_write_bytecode = False

# Objects before Python looks for cycles, 700 by default: thousands of tests that stay are looked
# through again and again, 5 to 10 % of the time of all. Cycles of large arrays still go.
gc.set_threshold(100_000, 20, 20)
