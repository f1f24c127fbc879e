//go:build race

package zactor_test

const raceEnabled = true
