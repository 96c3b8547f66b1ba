// Premium for a CMS that admits one known address, with storage and vault behind private endpoints.
using '../main.bicep'

param environmentName = 'weir-prod'
param location = 'westeurope'
param plan = 'premium'
param planSku = 'EP1'
param instances = 3
param maximumInstances = 6
param isZoneRedundant = true
param cmsUrl = 'https://cms.example/api/content'
param cmsSecrets = { WEIR_CMS_TOKEN: 'cms-token' }
param hasPrivateStorage = true
param hasFixedAddress = true
param isStorageLocked = true
param alertMails = ['operators@example.com']
param budgetAmount = 600
param budgetStart = '2026-12-01'
