"""Run the attack: `python -m scripts.attack`."""

import sys

from scripts.attack.program import main

if __name__ == "__main__":
    sys.exit(main())
