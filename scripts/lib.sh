# Sourced by the other scripts: changes to the top of the repository and defines the functions that print messages.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export BLUEZKIT_TOOLS=1  # Package.swift: with the programs that tests run
script=scripts/$(basename "$0")
say() { echo "$script: $*"; }
fail() { echo "$script: $*" >&2; exit 1; }
elapsed() { printf '%d min %02d s' $((SECONDS / 60)) $((SECONDS % 60)); }

# bare_system SUITE DIRECTORY [ARCHITECTURE]: makes a bare Debian system there, which knows this machine's mirror; that of
# another architecture than this machine's is emulated. It takes root. What was made is in .build/bare, for the next time.
bare_system() {
  local suite=$1 root=$2 architecture=${3:-$(dpkg --print-architecture)} kept mirror emulate=()
  [ "$architecture" = "$(dpkg --print-architecture)" ] || emulate=(scripts/cross "$architecture" emulate)
  kept=$PWD/.build/bare/$suite-$architecture
  scripts/install mmdebstrap arch-test
  mkdir -p "$root" "${kept%/*}"
  if [ ! -f "$kept.tar" ]; then
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' | head -1)
    # What this machine has to say about its mirror: a proxy, or that old lists are good.
    apt-config dump Acquire | grep -i '^Acquire::\(http\|https\|Check-Valid-Until\)\b' >"$kept.conf" || :
    "${emulate[@]}" mmdebstrap --mode=root --variant=minbase --format=tar --skip=chroot/mount/sys --aptopt="$kept.conf" \
      --architectures="$architecture" "$suite" "$kept.tar.new" "deb ${mirror:-http://deb.debian.org/debian} $suite main" \
      >"$kept.log" 2>&1 </dev/null || { tail -5 "$kept.log" >&2; fail "mmdebstrap failed: $kept.log"; }
    mv "$kept.tar.new" "$kept.tar"
  fi
  tar -x -f "$kept.tar" -C "$root" --exclude './dev/*'
  cp /etc/resolv.conf "$root/etc/"
}

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
  # shellcheck disable=SC2034  # for the caller
  why="a powered Bluetooth adapter is here"
}
