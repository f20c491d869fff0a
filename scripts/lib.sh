# Sourced by the other scripts: changes to the top of the repository and defines the functions that print messages.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export BLUEZKIT_TOOLS=1  # Package.swift: with the programs that tests run
script=scripts/$(basename "$0")
say() { echo "$script: $*"; }
fail() { echo "$script: $*" >&2; exit 1; }
elapsed() { printf '%d min %02d s' $((SECONDS / 60)) $((SECONDS % 60)); }
