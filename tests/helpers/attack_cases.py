"""Cases for the pool of the attack, in a module that its processes import quickly."""

import os
import time
from collections import Counter

from scripts.attack.cases import Report


def run_hard(section, seed, index):
    """Case 1 kills its process, case 2 never ends."""
    if index == 1:
        os.abort()
    if index == 2:
        time.sleep(600)
    return Report(section, index, Counter(fine=1), [])
