//go:build race

package zrouter

const raceEnabled = true
