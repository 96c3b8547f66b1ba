// Sign-in by Entra ID in front of the operator's page. It is a second gate: the function key is still asked for, and the
// addresses that programs use are excluded, because a program cannot follow a redirect to a sign-in.

@description('Name of the function app.')
param appName string

@description('Application (client) id of the registration in Entra ID that operators sign in to.')
param clientId string

@description('Object ids of the groups whose members may open the page; empty for all users whom the registration admits.')
param groups array

@description('Paths without sign-in: those of upstreams, scrapers, probes and the OpenAPI description.')
param openPaths array

resource app 'Microsoft.Web/sites@2025-03-01' existing = {
  name: appName
}

resource signIn 'Microsoft.Web/sites/config@2025-03-01' = {
  parent: app
  name: 'authsettingsV2'
  properties: {
    platform: { enabled: true, runtimeVersion: '~1' }
    globalValidation: {
      requireAuthentication: true
      unauthenticatedClientAction: 'RedirectToLoginPage'
      redirectToProvider: 'azureactivedirectory'
      excludedPaths: openPaths
    }
    httpSettings: { requireHttps: true }
    identityProviders: {
      azureActiveDirectory: {
        enabled: true
        registration: {
          clientId: clientId
          // The app proves itself to the registration by its managed identity, through a federated credential.
          clientSecretSettingName: 'OVERRIDE_USE_MI_FIC_ASSERTION_CLIENTID'
          openIdIssuer: '${environment().authentication.loginEndpoint}${tenant().tenantId}/v2.0'
        }
        validation: {
          allowedAudiences: [clientId, 'api://${clientId}']
          defaultAuthorizationPolicy: empty(groups) ? null : { allowedPrincipals: { groups: groups } }
        }
      }
    }
    login: { tokenStore: { enabled: false } }
  }
}

@description('Address that Entra ID sends operators back to: a redirect URI of the registration.')
output redirectUri string = 'https://${app.properties.defaultHostName}/.auth/login/aad/callback'
