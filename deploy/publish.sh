#!/bin/sh
# Publishes a package to an app that infra/ has made, as its plan wants it, and waits for its health.
#
#   deploy/publish.sh weir-<version>-app-linux-amd64.zip
#
# WEIR_PLAN, WEIR_APP, AZURE_RESOURCE_GROUP, WEIR_STORAGE, WEIR_PACKAGE_CONTAINER and WEIR_URL are outputs of
# infra/main.bicep: eval "$(azd env get-values | sed 's/^/export /')". az has to be signed in.
set -eu
zip=${1:?which package: the path of a zip for linux-amd64}
: "${WEIR_PLAN:?is not set: flex, premium or dedicated}"
: "${WEIR_APP:?is not set: the name of the app}"
: "${AZURE_RESOURCE_GROUP:?is not set}"
[ -f "$zip" ] || { echo "publish: there is no $zip" >&2; exit 1; }
here=$(dirname "$0")

case $WEIR_PLAN in
  flex | dedicated)
    az functionapp deployment source config-zip -g "$AZURE_RESOURCE_GROUP" -n "$WEIR_APP" --src "$zip" -o none
    ;;
  premium)
    : "${WEIR_STORAGE:?is not set: the name of the storage account}"
    : "${WEIR_PACKAGE_CONTAINER:?is not set: the name of the container of packages}"
    az storage blob upload --auth-mode login --account-name "$WEIR_STORAGE" -c "$WEIR_PACKAGE_CONTAINER" \
      -n weir.zip -f "$zip" --overwrite -o none
    az functionapp restart -g "$AZURE_RESOURCE_GROUP" -n "$WEIR_APP"
    # The platform learns of triggers by this only, because nothing was published to the app itself.
    az resource invoke-action --action syncfunctiontriggers --api-version 2025-03-01 -g "$AZURE_RESOURCE_GROUP" \
      -n "$WEIR_APP" --resource-type Microsoft.Web/sites -o none
    ;;
  *)
    echo "publish: WEIR_PLAN is $WEIR_PLAN and can be flex, premium or dedicated" >&2
    exit 1
    ;;
esac
exec "$here/smoke.sh"
