//go:build race

package zbus_test

const raceEnabled = true
