// Dedicated: two instances of a plan that is paid by the hour, whatever comes in.
using '../main.bicep'

param environmentName = 'weir-prod'
param location = 'westeurope'
param plan = 'dedicated'
param planSku = 'P0v3'
param instances = 2
param cmsUrl = 'https://cms.example/api/content'
param cmsSecrets = { WEIR_CMS_TOKEN: 'cms-token' }
param isStorageLocked = true
param alertMails = ['operators@example.com']
param budgetAmount = 200
param budgetStart = '2026-12-01'
