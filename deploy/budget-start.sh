#!/bin/sh
# Keeps the first day of the budget in the azd environment. Azure refuses to change it later, so it is chosen once.
set -eu
start=$(azd env get-value WEIR_BUDGET_START 2>/dev/null) || start=
case $start in
  [0-9][0-9][0-9][0-9]-[0-9][0-9]-01) ;;
  *) azd env set WEIR_BUDGET_START "$(date -u +%Y-%m-01)" ;;
esac
