#!/usr/bin/env bash
# Tries Weir in two bare root folders, as a new user would, and prints the times:
#   1. a root with the released program alone: weir serve --demo
#   2. a root with Go, make, git and a shell alone: git clone, make run
# It needs Linux and root (chroot). The second root downloads Go modules, as the machine's own Go would.
set -euo pipefail
set -m # each job is a process group, so that all its processes end with it
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
pids=()
cleanup() {
  for p in "${pids[@]}"; do kill -- "-$p" 2>/dev/null || true; done
  for p in "${pids[@]}"; do wait "$p" 2>/dev/null || true; done
  umount "$work"/go/proc "$work"/go/dev/null 2>/dev/null || true
  chmod -R u+w "$work" && rm -rf "$work"
}
trap cleanup EXIT

chroot=$(command -v chroot)

now() { date +%s.%N; }
took() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.2f s", b - a }'; }

# await FILE TEXT: waits until a file has a text.
await() {
  for _ in $(seq 1 30000); do grep -q "$2" "$1" 2>/dev/null && return; sleep 0.02; done
  echo "bare: $1 has no \"$2\"; its end:" >&2; tail -20 "$1" >&2; exit 1
}

echo "1. a root with the program alone"
mkdir "$work/alone"
(cd "$here" && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$work/alone/weir" ./handler)
began=$(now)
chroot "$work/alone" /weir serve --demo --data /data --listen 127.0.0.1:27171 --demo-cms 127.0.0.1:27172 \
  > "$work/alone.log" 2>&1 & pids+=($!)
await "$work/alone.log" delivered
echo "   weir serve --demo to the first delivered message: $(took "$began")"
kill -- "-${pids[0]}"; wait "${pids[0]}" || true

echo "2. a root with Go, make, git and a shell alone"
root=$work/go
mkdir -p "$root"/{usr/bin,usr/local,tmp,dev,proc,root,etc/ssl/certs,src}
ln -s usr/bin "$root/bin"
ln -s bash "$root/usr/bin/sh"
add() { # add PROGRAM: copies a program with its libraries
  mkdir -p "$root$(dirname "$1")"; cp -Lf "$1" "$root$1"
  { ldd "$1" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r lib; do
    mkdir -p "$root$(dirname "$lib")"; cp -Lf "$lib" "$root$lib"
  done
}
for name in bash env mkdir rm cat uname git make sed grep awk; do add "/usr/bin/$name"; done
for name in git git-upload-pack git-remote-https; do
  [ -e "$(git --exec-path)/$name" ] && add "$(git --exec-path)/$name"
done
mkdir -p "$root$(git --exec-path)"
cp -r "$(go env GOROOT)" "$root/usr/local/go"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" 2>/dev/null || true
: > "$root/dev/null"; mount --bind /dev/null "$root/dev/null"; mount -t proc proc "$root/proc"
git clone -q --bare "$here" "$root/src/weir.git"

began=$(now)
in_root() { env -i HOME=/root PATH=/usr/local/go/bin:/usr/bin:/bin ${GOPROXY:+GOPROXY="$GOPROXY"} \
  ${HTTPS_PROXY:+HTTPS_PROXY="$HTTPS_PROXY"} ${https_proxy:+https_proxy="$https_proxy"} \
  ${SSL_CERT_FILE:+SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt} \
  "$chroot" "$root" /usr/bin/bash -c "$1"; }
in_root 'cd /root && git -c safe.directory=* clone -q /src/weir.git weir'
echo "   git clone: $(took "$began")"
built=$(now)
in_root 'cd /root/weir && exec make run PORT=27173 CMS_PORT=27174' > "$work/go.log" 2>&1 & pids+=($!)
await "$work/go.log" 'http://127'
echo "   make run to its first line (downloads and builds): $(took "$built")"
await "$work/go.log" delivered
echo "   git clone and make run to the first delivered message: $(took "$began")"
