# Sourced by .ci/run and .ci/full: nothing of this machine but HOME and PATH, an environment of its own, the installation, style and types.
set -euo pipefail
cd "$(dirname "$0")/.."

# Nothing but HOME and PATH is taken over: a variable that happens to be set on one machine (PYTHONUNBUFFERED, say) must not decide
# whether the tests pass. What pip needs to reach its index belongs into pip's own configuration.
if [ -z "${ATTNLAB_CI_CLEAN:-}" ]; then
  exec env -i HOME="$HOME" PATH="$PATH" ATTNLAB_CI_CLEAN=1 bash ".ci/$(basename "$0")"
fi
unset ATTNLAB_CI_CLEAN

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export JAX_PLATFORMS=cpu ATTNLAB_CACHE="$work/cache" PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

# A worker that died (a test that waited in C, too little memory) is replaced twice, not eight times: each may have waited for 330 s.
run_tests() { python -m pytest -n 2 -q --durations=30 --max-worker-restart=2 "$@"; }

say "install"
python3 -m venv "$work/venv"
. "$work/venv/bin/activate"
python -m pip install --quiet -e '.[dev]'

say "style and types"
ruff check .
mypy
