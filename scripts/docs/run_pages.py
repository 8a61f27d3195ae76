"""Run the Python code of the pages, with short chains: code that readers copy must work.

Blocks that begin with ```python are run, those of a page one after another in one namespace; what is only shown (a
cluster, another library) is in ```{code-block} python.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import matplotlib as mpl

from hmcgp import GPClassifier, GPRegressor

ROOT = Path(__file__).parents[2]
SHORT = {"draws": 25, "tune": 50, "chains": 2, "progressbar": False}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def main() -> int:
    """Run all pages, or those that are named; returns the number that failed."""
    mpl.use("Agg")
    warnings.simplefilter("ignore")  # so short a run is told about
    for estimator in (GPClassifier, GPRegressor):
        defaults = estimator.__init__.__kwdefaults__
        assert defaults is not None
        defaults.update(SHORT)
    pages = [Path(name) for name in sys.argv[1:]] or [ROOT / "README.md", *sorted((ROOT / "scripts/docs").glob("*.md"))]
    pages = [page.resolve() for page in pages]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        return sum(not ran(page) for page in pages)


def ran(page: Path) -> bool:
    """Run the blocks of a page; False, with the error on stderr, if one fails."""
    import matplotlib.pyplot as plt

    blocks, begin = BLOCK.findall(page.read_text(encoding="utf-8")), time.process_time()
    namespace: dict[str, object] = {"__name__": page.stem}
    with open(os.devnull, "w", encoding="utf-8") as quiet:
        for block in blocks:
            shown, sys.stdout = sys.stdout, quiet
            try:
                exec(compile(block, str(page), "exec", dont_inherit=True), namespace)  # not our annotations
            except Exception:
                print(f"{page}: this block fails\n{block}", file=sys.stderr)
                traceback.print_exc()
                return False
            finally:
                sys.stdout = shown
                plt.close("all")
    if blocks:
        print(f"{page.name}: {len(blocks)} blocks ran in {time.process_time() - begin:.1f} s")
    return True


if __name__ == "__main__":
    sys.exit(main())
