package settings

import (
	"fmt"
	"strings"
)

// didYouMean returns ", did you mean X?" for the nearest of names, or a hint where none is near.
func didYouMean(word string, names []string) string {
	if best, ok := Nearest(word, names); ok {
		return fmt.Sprintf(", did you mean %s?", best)
	}
	return " (--check prints all that are known)"
}

// Nearest returns the name with the smallest edit distance to word, the first of equals, if it is near enough to be
// what was meant: at most half of the word's letters differ, or two of three after the first.
func Nearest(word string, names []string) (string, bool) {
	best, least := "", len(word)/2+1
	for _, n := range names {
		d := distance(word, n)
		if len(word) <= 3 && d == 2 && n != "" && strings.HasPrefix(word, n[:1]) {
			d = 1 // two swapped letters of a short word: dve for dev
		}
		if d < least {
			best, least = n, d
		}
	}
	return best, best != ""
}

// distance is the Levenshtein distance, by one row of the table (Wagner, Fischer 1974).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
