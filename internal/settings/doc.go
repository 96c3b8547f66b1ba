// Package settings reads the settings of the process from the environment and weir.yaml.
//
//   - Load reads them, and returns an error with a weir.SettingProblem for each problem: with the
//     path of the setting, and its place in the file.
//   - Each group of settings has a type, with the rules for its values.
//   - The methods return the settings in the forms that the parts of the process take.
//
// A new setting is a field with a yaml tag, a default in Default, and a rule in the function
// checkValues of its group. A value with a form of its own has a type in values.go. A secret has
// the type Secret: so it is not printed, and package app hides it in each text that leaves the
// process.
package settings
