#!/usr/bin/env bash
# Installs the packages of Debian or Ubuntu that the tests need and this machine lacks, as root or by a sudo that asks
# for no password. None of the packages starts a service. INSTALL=0 forbids the installation.
#
#   install-packages.sh           install; if that is not possible, print what to do and end at once
#   install-packages.sh --check   only list what is missing
#   install-packages.sh cms       the packages that make test-cms needs, too; also with --check
#
# Exit codes: 0 = nothing is missing (any more), 1 = packages are missing, or their installation failed, 2 = something
# is missing that no package of this system provides.
set -euo pipefail
arguments=("$@")
PATH=$PATH:/usr/sbin:/sbin # dpkg needs them, and the PATH of ordinary users lacks them

# is_for_cms reports whether the arguments ask for the packages of make test-cms.
is_for_cms() { [[ " ${arguments[*]} " = *" cms "* ]]; }

# find_missing sets missing, the packages to install, unavailable, a sentence about what no package provides, and
# system, such as debian.
find_missing() {
  missing=() unavailable= system=
  local package installed

  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    unavailable="the tests need packages of Debian or Ubuntu, and this system has no apt: use the development container"
    unavailable+=" (CONTRIBUTING.md, Set up)"
    return
  fi

  for package in make curl; do
    command -v "$package" >/dev/null || missing+=("$package")
  done
  # The race detector needs a C compiler.
  command -v gcc >/dev/null || missing+=(gcc libc6-dev)
  [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
  # The tests of pages take either. The shell takes half of the processor time, so it is installed.
  command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null ||
    missing+=(chromium-headless-shell)
  # It records the writes of the embedded store for power cuts, and lets the disk fail.
  command -v strace >/dev/null || missing+=(strace)

  # For a real WordPress, which make wordpress unpacks, and for a real RabbitMQ: the tests start nodes of their own.
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null | sed -n 's/ installed$//p')
  local packages=(php-cli php-mysql php-xml php-curl mariadb-server-core mariadb-client-core rabbitmq-server)
  if is_for_cms; then
    # npm compiles a part of Directus.
    packages+=(postgresql php-mbstring php-intl)
    command -v g++ >/dev/null || missing+=(g++)
    command -v python3 >/dev/null || missing+=(python3)
  fi
  for package in "${packages[@]}"; do
    grep -qx "$package" <<<"$installed" || missing+=("$package")
  done

  system=$(sed -n 's/^ID=//p' "${OS_RELEASE:-/etc/os-release}" 2>/dev/null || true)
  if [ "$system" = ubuntu ] && [[ " ${missing[*]} " = *" chromium-headless-shell "* ]]; then
    unavailable="Ubuntu has Chromium only as a snap, which the tests cannot use: install Google Chrome, then"
    unavailable+=" sudo ln -s /usr/bin/google-chrome /usr/local/bin/chromium"
  fi
  find_toolchains
}

# find_toolchains adds Go and Node to unavailable: the packages of Debian 12 are too old. Under sudo nothing is said of
# them, because sudo hides the PATH of its caller.
find_toolchains() {
  [ -z "${SUDO_COMMAND:-}" ] || return 0
  local version

  version=$(node --version 2>/dev/null || true)
  if [ -z "$version" ] || ! command -v npm >/dev/null; then
    unavailable="Node 20 with npm is missing: install it from https://nodejs.org${unavailable:+; $unavailable}"
  elif ! [[ $version =~ ^v([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -lt 20 ]; then
    unavailable="Node is $version, and 20 is needed: install it from https://nodejs.org${unavailable:+; $unavailable}"
  fi

  # From 1.21 on, the go command fetches the version that go.mod names.
  version=$(cd / && GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || true)
  if [ -z "$version" ]; then
    unavailable="Go 1.26 is missing: install it from https://go.dev/dl${unavailable:+; $unavailable}"
  elif [[ $version =~ ^go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -lt 21 ]; then
    unavailable="Go is $version, and 1.26 is needed: install it from https://go.dev/dl${unavailable:+; $unavailable}"
  fi
}

# run_as_root runs a command as root. It never asks for a password.
run_as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# print_command prints the one line that installs the packages. A bare Debian has no sudo.
print_command() {
  local line=$0
  ! is_for_cms || line+=" cms"
  if [ "$(id -u)" = 0 ]; then
    echo "$line"
  elif command -v sudo >/dev/null; then
    echo "sudo $line"
  elif is_for_cms; then
    echo "su -c '$line'"
  else
    echo "su -c $line"
  fi
}

# run_apt runs apt-get and shows what it does. While another program has the package system, it says so and tries
# again: DPkg::Lock::Timeout does not cover the locks of the lists and of the downloaded packages.
run_apt() {
  local log attempt status
  log=$(mktemp)

  for attempt in $(seq 1 180); do
    status=0
    run_as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q -o DPkg::Lock::Timeout=5 \
      -o Dpkg::Use-Pty=0 "$@" </dev/null 2>&1 | tee "$log" |
      sed -u -E '/^(Selecting|Preparing|\(Reading|Unpacking|E: .*lock|W: Be aware|N: Be aware)/d' ||
      status=${PIPESTATUS[0]}
    [ "$status" -ne 0 ] && grep -qE 'Could not get lock|Unable to (acquire|lock)' "$log" || break

    echo "another program uses apt: waiting for it to end"
    sleep 5
  done

  rm -f "$log"
  return "$status"
}

# install_missing installs the packages. While it runs, policy-rc.d keeps them from starting a service.
install_missing() {
  local policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'run_as_root rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' | run_as_root tee "$policy" >/dev/null
    run_as_root chmod +x "$policy"
  fi

  run_apt update
  run_apt install -y --no-install-recommends "${missing[@]}"
}

# may_install reports whether this script can install packages, and nothing forbids it.
may_install() {
  [[ " ${arguments[*]} " != *" --check "* ]] && [ "${INSTALL:-1}" != 0 ] && run_as_root true 2>/dev/null
}

# add_headless_shell installs Chromium's headless shell on a Debian that has only Chromium. The tests pass without it,
# so a failure ends nothing.
add_headless_shell() {
  ! command -v chromium-headless-shell >/dev/null && [ "$system" = debian ] && may_install || return 0
  echo "installing chromium-headless-shell: with it the tests of pages take half of the processor time"
  missing=(chromium-headless-shell)
  install_missing || echo "it was not installed: the tests take chromium"
}

find_missing
[ ${#missing[@]} -eq 0 ] || echo "missing: ${missing[*]}"
if [ -n "$unavailable" ]; then
  echo "$unavailable"
  exit 2
fi
if [ ${#missing[@]} -eq 0 ]; then
  add_headless_shell
  exit 0
fi

[[ " ${arguments[*]} " != *" --check "* ]] || exit 1
if ! may_install; then
  print_command
  exit 1
fi
echo "installing them: this takes a few minutes"
install_missing
