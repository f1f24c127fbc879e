//go:build race

package keep

const raceEnabled = true // pools drop what they like
