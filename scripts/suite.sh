# Sourced: packages of any Debian suite and architecture, from the mirror that apt is configured with. apt's state is one of
# its own, in ./apt: nothing of this machine changes, and no root is needed. The caller defines `say` and `fail`.
# shellcheck shell=bash

# suite_begin SUITE [ARCHITECTURE]
suite_begin() {
  local suite=$1 keyring=/usr/share/keyrings/debian-archive-keyring.gpg main security
  [[ $suite =~ ^[a-z]+$ ]] || fail "'$suite' is no name of a Debian suite (such as trixie, or sid)"
  [ -e $keyring ] || fail "no $keyring: install the package debian-archive-keyring, which Ubuntu has as well"
  suite_architecture=${2:-$(dpkg --print-architecture)}
  rm -rf apt
  mkdir -p apt/{sources,lists/partial,cache/archives/partial}
  : >apt/status
  main=$(debian_mirror Debian) security=$(debian_mirror Debian-Security)
  : "${main:=http://deb.debian.org/debian}"  # of another distribution's apt
  echo "deb [signed-by=$keyring] $main $suite main" >apt/sources/suite.list
  # Unstable has no updates but itself.
  [ -z "$security" ] || [ "$suite" = sid ] ||
    echo "deb [signed-by=$keyring] $security $suite-security main" >>apt/sources/suite.list
  suite_apt apt-get -o APT::Update::Error-Mode=any update >&2 || fail "$main has no suite '$suite', or cannot be reached"
}

# The address of this machine's own mirror. $1: the Label of what is wanted.
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' "Label: $1" |
    sort -u | head -1
}

suite_apt() {
  local tool=$1; shift
  "$tool" -q -o APT::Architecture="$suite_architecture" -o APT::Architectures::="$suite_architecture" \
    -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/apt/sources" \
    -o Dir::State::lists="$PWD/apt/lists" -o Dir::State::status="$PWD/apt/status" -o Dir::Cache="$PWD/apt/cache" \
    -o Dir::State::extended_states="$PWD/apt/extended" -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@" </dev/null
}

# Downloads packages, and what they depend on, to apt/cache/archives.
suite_fetch() { suite_apt apt-get -y -d --no-install-recommends install "$@" >&2; }

# Unpacks what was downloaded into this directory, which is then a root directory; no package is configured. The arguments
# are options for tar, such as --exclude.
suite_unpack() {
  local name package
  for name in bin sbin lib lib64; do mkdir -p usr/$name; ln -s usr/$name $name; done
  for package in apt/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner \
      --exclude './usr/share/doc' --exclude './usr/share/man' --exclude './usr/share/locale' "$@" || return
  done
  mkdir -p proc sys dev run tmp var/lib
}
