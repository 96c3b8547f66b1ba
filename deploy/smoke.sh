#!/bin/sh
# Asks a deployment whether it works: health is 200, the description is there, and a post without a key is refused.
# With WEIR_CODE (a key of the function metrics) it asks for the metrics, too. It files no message.
#
#   WEIR_URL=https://<app>.azurewebsites.net deploy/smoke.sh
#
# WEIR_SMOKE_TRIES (60) and WEIR_SMOKE_PAUSE (5, in seconds) bound the wait for an app that starts.
set -eu
: "${WEIR_URL:?is not set: the address of the app, such as https://<app>.azurewebsites.net}"
tries=${WEIR_SMOKE_TRIES:-60}
pause=${WEIR_SMOKE_PAUSE:-5}
body=$(mktemp)
trap 'rm -f "$body"' EXIT

# ask prints the status of a request, or 000 if there is no answer.
ask() { curl -s -o "$body" -w '%{http_code}' --max-time 30 "$@" || true; }

fail() {
  echo "smoke: $1" >&2
  head -c 2000 "$body" >&2
  echo >&2
  exit 1
}

n=1
while status=$(ask "$WEIR_URL/api/health"); [ "$status" != 200 ]; do
  [ "$n" -lt "$tries" ] || fail "/api/health answered $status, $n times"
  n=$((n + 1))
  sleep "$pause"
done
echo "smoke: /api/health answers 200"

status=$(ask "$WEIR_URL/api/openapi.yaml")
case $status in
  200 | 401 | 404) echo "smoke: /api/openapi.yaml answers $status" ;;
  *) fail "/api/openapi.yaml answered $status" ;;
esac

status=$(ask -X POST -H 'Content-Type: application/xml' -d '<smoke/>' "$WEIR_URL/api/messages")
[ "$status" = 401 ] || fail "a post without a key was answered $status and not 401: the address is open"
echo "smoke: a post without a key is refused"

if [ -n "${WEIR_CODE:-}" ]; then
  # The key goes in by a file, so that no list of processes shows it.
  status=$(printf 'header = "x-functions-key: %s"\n' "$WEIR_CODE" | ask -K - "$WEIR_URL/api/metrics")
  [ "$status" = 200 ] || fail "/api/metrics answered $status"
  grep -o 'weir_build_info{[^}]*}' "$body" || fail "/api/metrics does not have weir_build_info"
fi
