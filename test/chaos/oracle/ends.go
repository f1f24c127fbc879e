package oracle

import "fmt"

// Ended is a request of a client: how often it ended.
type Ended struct {
	Client string
	Number uint64 // of the client's requests
	Times  int
}

// Ends checks that each request ended exactly once.
func Ends(requests []Ended) (faults []string) {
	for _, r := range requests {
		if r.Times != 1 {
			faults = append(faults, fmt.Sprintf("ends: request %d of %s ended %d times", r.Number, r.Client, r.Times))
		}
	}
	return faults
}
