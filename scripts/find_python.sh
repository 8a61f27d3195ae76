# Sourced by .ci/run and scripts/build_wheels.
find_python() {  # an interpreter of this version that runs: on the PATH, or kept by pyenv; never a shim, which needs HOME
  local candidate
  for candidate in "python$1" "$(pyenv root 2>/dev/null)"/versions/"$1".*/bin/python; do
    if "$candidate" -c 'import sys; print(sys.executable)' 2>/dev/null; then
      return
    fi
  done
  echo "no Python $1 found; install it, or put it on the PATH" >&2
  return 1
}
