//go:build !race

package zroute_test

const (
	slower = 1
	slack  = 0
)
