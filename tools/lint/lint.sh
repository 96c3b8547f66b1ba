#!/usr/bin/env bash
# Runs the linters whose versions go.mod pins, in build/lint, on both modules. Called by `make lint`.
# Lines of Go over 120 columns are refused in what was changed since LINT_BASE (default: main).
set -euo pipefail
cd "$(dirname "$0")/../.."

root=$PWD
for module in . tools; do
  cd "$root/$module"
  "$root/build/lint/revive" -config "$root/tools/lint/revive.toml" -formatter default -exclude ./tools/... ./...
  # A main that ends by os.Exit needs no deferred calls.
  "$root/build/lint/gocritic" check -disable=exitAfterDefer ./...
done
cd "$root"
# Tests compare an error with the one they expect; the program must look through wrapped errors.
build/lint/go-errorlint -test=false ./functions/... ./handler/... ./internal/...

# Two public linters of OpenAPI documents, with their recommended rules. A warning fails, too.
document=$root/internal/openapi/openapi.yaml
(cd tools/openapi && node_modules/.bin/spectral lint --quiet -F warn "$document")
REDOCLY_SUPPRESS_UPDATE_NOTICE=true REDOCLY_TELEMETRY=off \
  tools/openapi/node_modules/.bin/redocly lint --config tools/openapi/redocly.yaml --max-problems 20 "$document" \
  >build/lint/redocly.log 2>&1 && ! grep -q 'You have [0-9]* warning' build/lint/redocly.log ||
  { cat build/lint/redocly.log; exit 1; }

base=$(git merge-base HEAD "${LINT_BASE:-main}" 2>/dev/null || true)
if [ -n "$base" ]; then
  # A mutant quotes the text that it replaces: its line is as long as that.
  git diff -U0 "$base" -- '*.go' ':!internal/simulation/mutants_test.go' | awk '
    /^\+\+\+ / { file = substr($0, 7); next }
    /^\+/ { line = substr($0, 2); gsub(/\t/, "    ", line)
            if (length(line) > 120) { print file ": over 120 columns: " substr(line, 1, 80) " …"; long = 1 } }
    END { exit long }'
fi
