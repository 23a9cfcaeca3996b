"""How many random programs run: few in the suite, always the same; ``make fuzz`` runs others, and more."""

import os

IS_ASKED = "TRACEJIT_FUZZ" in os.environ
"""Whether `TRACEJIT_FUZZ` says how many. Hypothesis then makes other programs in each run."""

COUNT = int(os.environ.get("TRACEJIT_FUZZ", "20"))
"""Programs of the test that has most; the others run a part of them."""
