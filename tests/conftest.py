import os

import matplotlib as mpl

mpl.use("Agg")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
