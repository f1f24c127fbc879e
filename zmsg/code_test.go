package zmsg

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The codes are told to clients in three places: what they are called and whether to send again is the same in all.
func TestCodesAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	ts, err := os.ReadFile("../clients/ts/src/errors.ts")
	if err != nil {
		t.Fatal(err)
	}
	_, retry, _ := strings.Cut(string(ts), "const retry")
	retry, _, _ = strings.Cut(retry, "]")
	names := map[string]bool{}
	for c := range Code(NumCodes) {
		name := c.String()
		if name == "" || name == "framework" || names[name] {
			t.Errorf("code %d is called %q", c, name)
		}
		names[name] = true
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d \| %s \| (later)?`, c, name)).FindStringSubmatch(string(doc))
		if row == nil || (row[1] != "") != c.Retry() {
			t.Errorf("docs/wire.md has no row of %d, %s, to be sent again: %v", c, name, c.Retry())
		}
		upper := strings.ToUpper(name)
		if !strings.Contains(string(ts), fmt.Sprintf("  %s: %d,", upper, c)) || !strings.Contains(string(ts), `"`+name+`"`) {
			t.Errorf("clients/ts/src/errors.ts has no code %s = %d", upper, c)
		}
		if regexp.MustCompile(`Code\.`+upper+`\b`).MatchString(retry) != c.Retry() {
			t.Errorf("clients/ts/src/errors.ts differs about sending %s again", upper)
		}
	}
	if Code(NumCodes).String() != "framework" || Code(NumCodes).Retry() || CodeApplication.String() != "application" {
		t.Error("a code that nobody knows has no name of its own, and is not sent again")
	}
}

func TestErrorsAreComparedByCode(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("asked: %w", &Error{Code: CodeBusy, Outcome: Unknown, Text: "full"})
	if !errors.Is(err, ErrBusy) || errors.Is(err, ErrTimeout) || CodeOf(err) != CodeBusy || OutcomeOf(err) != Unknown {
		t.Error(err)
	}
	if CodeOf(errors.New("plain")) != CodeInternal || OutcomeOf(errors.New("plain")) != Unknown || OutcomeOf(nil) != Executed {
		t.Error("errors that do not say")
	}
}
