"""Cases for the pool of the attack, in a module that its processes import quickly."""

import os
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from attack.cases import Report


def run_hard(section, seed, index):
    """Case 1 kills its process, case 2 never ends."""
    if index == 1:
        os.abort()
    if index == 2:
        time.sleep(600)
    return Report(section, index, Counter(fine=1), [])
