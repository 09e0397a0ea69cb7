#!/usr/bin/env bash
# Runs the whole check: style, types, tests. Makes its own virtual environment.
#   bash launch/test.sh [--full] [pytest arguments]
# --full adds the long sets. PYTHON chooses the interpreter, VENV the environment's folder.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv-test}"
bash launch/install.sh "$venv" bfcl,gguf,test
bash launch/fetch_tokenizers.sh
marker="not full"
if [ "${1:-}" = "--full" ]; then marker=""; shift; fi
"$venv/bin/ruff" check --no-cache .
"$venv/bin/ruff" format --check .
"$venv/bin/pyright" --pythonpath "$venv/bin/python"
exec "$venv/bin/python" -m pytest -m "$marker" "$@"
