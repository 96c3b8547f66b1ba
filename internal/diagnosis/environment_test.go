package diagnosis

import testsettings "weir/internal/testkit/settings"

const minimal = testsettings.Minimal

var newEnvironment = testsettings.NewEnvironment
