//go:build race

package simulation_test

// isRaceDetectorOn reports whether this binary has the race detector.
const isRaceDetectorOn = true
