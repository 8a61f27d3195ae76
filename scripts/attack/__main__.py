"""Run the attack: `python scripts/attack`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from attack.program import main

    sys.exit(main())
