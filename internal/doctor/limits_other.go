//go:build !linux

package doctor

// ThisMachine returns the limits; nothing is known here.
func ThisMachine() Limits { return Limits{} }
