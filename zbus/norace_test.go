//go:build !race

package zbus_test

const raceEnabled = false
