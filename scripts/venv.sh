# Sourced by scripts/demo, test, lint and build_docs: makes a virtual environment with the pinned, tested versions, once.
#   PYTHON   interpreter to use (default: python3; its environment is .venv, that of another one .venv-<version>)
#   EXTRAS   optional parts of the package to install
# Leaves the environment's interpreter in $python.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
interpreter="${PYTHON:-python3}"

version="$("$interpreter" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))')" || {
  echo "hmcgp needs Python 3.11 or newer; '$interpreter' is ${version:-not there}. Set PYTHON=/path/to/python3." >&2
  exit 1
}
venv="$root/.venv${PYTHON:+-$version}"
python="$venv/bin/python"
stamp="$version $(cat "$root/setup.cfg" "$root/pyproject.toml" "$root/scripts/constraints.txt" | cksum)"

done="$venv/installed-${EXTRAS:-plain}"  # one per set of extras: demo and test do not undo each other
if [ "$(cat "$done" 2>/dev/null)" != "$stamp" ]; then
  echo "Installing into $venv (once; takes a minute or two) ..." >&2
  if [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" != "$version" ]; then
    rm -rf "$venv"
    "$interpreter" -m venv "$venv" || {
      echo "Could not make it: is the 'venv' module installed (Debian: apt-get install python3-venv)?" >&2
      exit 1
    }
  fi
  # the constraint also holds for the isolated environment in which the package is built; a relative path, since pip
  # splits the variable at spaces; Python compiles the modules that are imported, a fraction of those installed
  (
    cd "$root"
    PIP_CONSTRAINT=scripts/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
      "$python" -m pip install --quiet --no-compile --editable ".${EXTRAS:+[$EXTRAS]}"
  ) || {
    echo "Installation failed (see above). With no network, or an old pip, fix that and run again." >&2
    exit 1
  }
  echo "$stamp" > "$done"
fi

# code compiled from other sources is not used, so one folder serves all states of the sources
export NUMBA_CACHE_DIR="$venv/numba"
# chains run in threads; BLAS on one thread each
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
