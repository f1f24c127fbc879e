//go:build race

package ztest_test

const raceEnabled = true
