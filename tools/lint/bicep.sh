#!/usr/bin/env bash
# Checks the templates with the Bicep compiler: no warning, and the form that `bicep format` gives. A pipeline runs this
# with the compiler of its machine; BICEP names another one.
set -euo pipefail
cd "$(dirname "$0")/../.."
bicep=${BICEP:-bicep}
command -v "$bicep" >/dev/null || { echo "bicep.sh: the Bicep compiler ($bicep) is not installed" >&2; exit 1; }
status=0
while read -r file; do
  found=$("$bicep" lint "$file" 2>&1) || status=1
  [ -z "$found" ] || { echo "$found"; status=1; }
  "$bicep" format --verify "$file" || { echo "$file: bicep format would change it"; status=1; }
done < <(git ls-files '*.bicep' '*.bicepparam')
exit "$status"
