// What azd up and deploy.yml use: Flex Consumption. Values come from the environment (azd env set NAME value), so that
// one file serves all environments. infra/examples has whole sets for each plan.
using 'main.bicep'

param environmentName = readEnvironmentVariable('AZURE_ENV_NAME', 'weir')
param location = readEnvironmentVariable('AZURE_LOCATION', 'westeurope')
param plan = readEnvironmentVariable('WEIR_PLAN', 'flex')
param prefix = readEnvironmentVariable('WEIR_PREFIX', 'weir')
param cmsUrl = readEnvironmentVariable('WEIR_CMS_URL', '')
param storageSku = readEnvironmentVariable('WEIR_STORAGE_SKU', 'Standard_ZRS')
param alertMails = empty(readEnvironmentVariable('WEIR_ALERT_MAIL', ''))
  ? []
  : [readEnvironmentVariable('WEIR_ALERT_MAIL', '')]
param budgetAmount = int(readEnvironmentVariable('WEIR_BUDGET', '0'))
param budgetStart = readEnvironmentVariable('WEIR_BUDGET_START', '')
param signInClientId = readEnvironmentVariable('WEIR_SIGN_IN_CLIENT_ID', '')
param deployerPrincipalId = readEnvironmentVariable('AZURE_PRINCIPAL_ID', '')
param deployerPrincipalType = readEnvironmentVariable('AZURE_PRINCIPAL_TYPE', 'User')
