#!/usr/bin/env bash
# Trains a small decoder from scratch on procedural tool-calling tasks: supervised warm-up, then GRPO.
#   bash launch/quickstart.sh [DIR] [--seed N] [--config.key=value ...]
# Makes its own virtual environment (.venv, or $VENV). Writes DIR/summary.json and DIR/learning_curve.png.
set -euo pipefail
from="$PWD"
cd "$(dirname "$0")/.."
dir=""; seed=0; extra=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) sed -n '2,4p' "$0" | cut -c3-; exit 0 ;;
    --seed) [ $# -ge 2 ] || { echo "quickstart: --seed needs a number" >&2; exit 2; }; seed="$2"; shift 2 ;;
    --seed=*) seed="${1#--seed=}"; shift ;;
    --config.*) extra+=("$1"); shift ;;
    -*) echo "quickstart: unknown option $1 (known: --seed N, --config.key=value)" >&2; exit 2 ;;
    *) [ -z "$dir" ] || { echo "quickstart: two folders given: $dir and $1" >&2; exit 2; }; dir="$1"; shift ;;
  esac
done
case "$seed" in ''|*[!0-9]*) echo "quickstart: --seed wants a whole number, found '$seed'" >&2; exit 2 ;; esac
case "$dir" in
  '') dir="runs/quickstart-seed$seed" ;;
  /*) ;;
  *) dir="$from/$dir" ;;  # relative to where the command was given
esac
venv="${VENV:-.venv}"
bash launch/install.sh "$venv" bfcl
"$venv/bin/python" -m rlagents.train --config=experiments/quickstart/procedural.py --workdir="$dir" \
  --config.seed="$seed" ${extra[@]+"${extra[@]}"}
exec "$venv/bin/python" -m experiments.quickstart.summarize "$dir"
