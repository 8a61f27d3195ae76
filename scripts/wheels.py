"""Add compiled functions to the pure wheel, for one interpreter at a time.

    python scripts/wheels.py dist python3.11 python3.13     # called by scripts/build_wheels

For each interpreter a temporary environment with the pinned versions installs the pure wheel and compiles all functions
that `hmcgp compile` lists, for the portable baseline of the machine's architecture (`BASELINES`).  The code goes into
the folder `hmcgp/machine_code` of a copy of the wheel, whose tags name the interpreter and the platform: that of the
installed numba, without which hmcgp does not run.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON_VERSION = "import sys; print('cp%d%d' % sys.version_info[:2])"
# architecture -> processor to compile for, and the features without which its code is not used (LLVM's names)
BASELINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "x86_64": (
        "x86-64-v3",
        (
            *("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf"),
            *("sse3", "sse4.1", "sse4.2", "ssse3", "xsave"),
        ),
    ),
    "arm64": ("generic", ()),
}
ALIASES = {"amd64": "x86_64", "aarch64": "arm64"}


def baseline() -> tuple[str, tuple[str, ...]]:
    """Processor and required features of this machine's architecture."""
    machine = platform.machine().lower()
    try:
        return BASELINES[ALIASES.get(machine, machine)]
    except KeyError:
        raise SystemExit(f"no baseline is known for {machine}: add one to BASELINES in {__file__}.") from None


def build(pure: Path, interpreter: str, out: Path) -> Path:
    """Build the wheel of one interpreter; returns its path."""
    with tempfile.TemporaryDirectory() as folder:
        venv, unpacked = Path(folder) / "venv", Path(folder) / "unpacked"
        python = environment(venv, interpreter, pure)
        cpu, _ = baseline()
        compiler = {
            "NUMBA_CPU_NAME": cpu,
            "NUMBA_CPU_FEATURES": "",  # those of the baseline, not of this machine
            "NUMBA_CACHE_DIR": str(Path(folder) / "cache"),
        }
        subprocess.run([python, "-m", "hmcgp", "compile"], check=True, env=os.environ | compiler, cwd=folder)
        subprocess.run([sys.executable, "-m", "wheel", "unpack", "-d", unpacked, pure], check=True, stdout=sys.stderr)
        (content,) = unpacked.iterdir()
        command = [str(python), __file__, "--collect", str(content / "hmcgp")]
        subprocess.run(command, check=True, env=os.environ | compiler, cwd=folder)
        retag(content, python)
        packed = Path(folder) / "packed"
        packed.mkdir()
        subprocess.run([sys.executable, "-m", "wheel", "pack", "-d", packed, content], check=True, stdout=sys.stderr)
        (wheel,) = packed.iterdir()
        return Path(shutil.copy(wheel, out))


def environment(venv: Path, interpreter: str, wheel: Path) -> Path:
    """Make a virtual environment with the wheel and the pinned versions; returns its interpreter."""
    subprocess.run([interpreter, "-m", "venv", venv], check=True)
    python = venv / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(ROOT / "scripts" / "constraints.txt"), str(wheel)], check=True)
    return python


def collect(package: Path) -> None:
    """Write the functions that have been compiled in this environment into the package of an unpacked wheel."""
    from hmcgp.compilation import compiled_functions
    from hmcgp.numerics.code_cache import source_digest
    from hmcgp.numerics.shipped_code import function_key, write

    functions = {}
    for function in compiled_functions():
        dispatcher, signature = function.dispatcher(), function.signature()
        reduced = dispatcher._cache.reduced(signature, dispatcher.targetctx)
        if reduced is None:
            raise SystemExit(f"{function.module}:{function.name} has not been compiled.")
        functions[function_key(dispatcher.py_func, signature)] = reduced
    folder = write(package, source_digest(), *baseline(), functions)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{len(functions)} compiled functions, {size / 1e6:.1f} MB", file=sys.stderr)


def retag(content: Path, python: Path) -> None:
    """Let the tags of an unpacked wheel name the interpreter and the platform of numba."""
    where = "from importlib.metadata import distribution as d; print(d('numba').read_text('WHEEL'))"
    numba = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout
    version = subprocess.run([python, "-c", PYTHON_VERSION], check=True, capture_output=True, text=True).stdout.strip()
    platforms = [line.rsplit("-", 1)[1] for line in numba.splitlines() if line.startswith("Tag: ")]
    (path,) = content.glob("*.dist-info/WHEEL")
    kept = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith(("Tag:", "Root-Is"))]
    tags = [f"Tag: {version}-none-{name}" for name in platforms]
    path.write_text("\n".join([*kept, "Root-Is-Purelib: false", *tags, ""]), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder with the pure wheel, for the others")
    parser.add_argument("interpreters", nargs="*", help="one wheel for each")
    parser.add_argument("--collect", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.collect:
        collect(options.out)
        return
    (pure,) = options.out.glob("hmcgp-*-py3-none-any.whl")
    for interpreter in options.interpreters:
        print(f"building for {interpreter} ...", file=sys.stderr, flush=True)
        print(f"wrote {build(pure, interpreter, options.out)}")


if __name__ == "__main__":
    main()
