#!/usr/bin/env bash
# Installs the packages of Debian or Ubuntu that the tests need and the machine lacks. It needs root. None of the
# packages starts a service. Ubuntu has Chromium as a snap only: there a chromium has to be on the machine already.
set -euo pipefail

# install_missing installs the packages of missing, with further options of apt-get.
install_missing() {
  [ ${#missing[@]} -gt 0 ] || return 0
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" "${missing[@]}"
}

missing=()
command -v make >/dev/null || missing+=(make)
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v chromium >/dev/null || missing+=(chromium)
install_missing

# For a real WordPress, which make wordpress unpacks.
missing=()
for package in php-cli php-mysql php-xml php-curl mariadb-server-core mariadb-client-core; do
  dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
install_missing --no-install-recommends

# For a real RabbitMQ: the tests start nodes of their own. policy-rc.d keeps the package from starting its service.
missing=()
dpkg -s rabbitmq-server >/dev/null 2>&1 || missing+=(rabbitmq-server)
policy=/usr/sbin/policy-rc.d
if [ ${#missing[@]} -gt 0 ] && [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
export RUNLEVEL=1
install_missing --no-install-recommends
