#!/usr/bin/env bash
# Runs the whole check: style, types, tests. Makes its own virtual environment.
#   bash launch/test.sh [--full] [pytest arguments]
# --full draws five times as many examples for every property, and tries all wrong edits of tests/mutations.py. PYTHON
# chooses the interpreter, VENV the environment's folder.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv-test}"
bash launch/install.sh "$venv" bfcl,gguf,test
bash launch/fetch_tokenizers.sh
if [ "${1:-}" = "--full" ]; then export RLAGENTS_TEST_EFFORT=5; shift; fi
"$venv/bin/ruff" check --no-cache .
"$venv/bin/ruff" format --check .
"$venv/bin/pyright" --pythonpath "$venv/bin/python"
exec "$venv/bin/python" -m pytest "$@"
