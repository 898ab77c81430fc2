"""Settings every test runs under."""

import os

# The matrices of the tests are small: a second BLAS thread only waits for the first. It has to be
# said before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
