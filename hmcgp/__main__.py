"""`python -m hmcgp` is the command `hmcgp`."""

import sys

from hmcgp.command import main

if __name__ == "__main__":
    sys.exit(main())
