#!/usr/bin/env bash
# Runs the whole check: style, types, tests. Makes its own virtual environment.
#   bash launch/test.sh [--full] [pytest arguments]
# --full draws five times as many examples for every property, and tries all wrong edits of tests/mutate.py. PYTHON
# chooses the interpreter, VENV the environment's folder. A process a core runs tests, four at most: each takes up to
# 5 GB.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv-test}"
bash launch/install.sh "$venv" bfcl,data,gguf,test
bash launch/fetch_tokenizers.sh
bash launch/fetch_browser.sh
if [ "${1:-}" = "--full" ]; then export RLAGENTS_TEST_EFFORT=5; shift; fi
"$venv/bin/ruff" check --no-cache .
"$venv/bin/ruff" format --check .
"$venv/bin/pyright" --pythonpath "$venv/bin/python"
# A file stays with one process: its tests share compiled programs.
exec "$venv/bin/python" -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile "$@"
