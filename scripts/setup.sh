#!/usr/bin/env bash
# Installs missing Debian packages (servers for the tests) and PyPI tools (in .tools/venv).
# A repeated run leaves installed packages unchanged. Needs root or sudo only if a Debian package is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

command -v cargo >/dev/null || die "Rust is missing: install rustup, then run this again"

packages=()
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || packages+=(postgresql)
command -v redis-server >/dev/null || packages+=(redis-server)
command -v setpriv >/dev/null || packages+=(util-linux)
command -v cc >/dev/null || packages+=(build-essential)
command -v python3 >/dev/null || packages+=(python3)
python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)

if ((${#packages[@]})); then
  command -v apt-get >/dev/null || die "please install: ${packages[*]} (only apt-get is handled here)"
  as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "please install as root: apt-get install ${packages[*]}"
    as_root=(sudo)
  fi
  say "installing ${packages[*]}"
  "${as_root[@]}" apt-get update -qq
  # The packages would start system-wide servers. Prevent that, because our servers are private.
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod +x "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

stamp=.tools/venv/.requirements
if ! cmp -s scripts/requirements.txt "$stamp"; then
  say "installing tools into .tools/venv"
  rm -rf .tools/venv
  python3 -m venv .tools/venv
  .tools/venv/bin/pip install --quiet --requirement scripts/requirements.txt
  cp scripts/requirements.txt "$stamp"
fi
