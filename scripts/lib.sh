# Sourced by the other scripts: changes to the top of the repository and defines the functions that print messages.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export BLUEZKIT_TOOLS=1  # Package.swift: with the programs that tests run
script=scripts/$(basename "$0")
say() { echo "$script: $*"; }
fail() { echo "$script: $*" >&2; exit 1; }
elapsed() { printf '%d min %02d s' $((SECONDS / 60)) $((SECONDS % 60)); }

# Sets `why`, and succeeds if bluetoothd reports a powered adapter. Makes one call, which may start bluetoothd.
powered_adapter() {
  local answer
  if ! answer=$(dbus-send --system --print-reply --reply-timeout=5000 --dest=org.bluez / \
    org.freedesktop.DBus.ObjectManager.GetManagedObjects 2>&1); then
    case $answer in
      *"Failed to open connection"*) why="there is no system D-Bus";;
      *AccessDenied*) why="this user may not talk to bluetoothd";;
      *) why="bluetoothd does not run";;
    esac
    return 1
  fi
  if ! grep -q '"org.bluez.Adapter1"' <<<"$answer"; then why="there is no Bluetooth adapter"; return 1; fi
  if ! grep -A1 '"Powered"' <<<"$answer" | grep 'boolean true' >/dev/null; then
    why="the Bluetooth adapter is off (bluetoothctl power on)"; return 1
  fi
  why="a powered Bluetooth adapter is here"
}
