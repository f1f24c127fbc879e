package logging_test

import (
	"bytes"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zgame/internal/logging"
	"zgame/zmsg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewWritesAtLevelAndAbove(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var b bytes.Buffer
		log, err := logging.New(&b, "warn", format)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("quiet")
		log.Warn("loud", "node", "n1")
		if got := b.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud") || !strings.Contains(got, "n1") {
			t.Errorf("%s: got %q, want the warning and its node alone", format, got)
		}
	}
}

func TestNewRefusesUnknownWords(t *testing.T) {
	for _, c := range []struct{ level, format, want string }{
		{"loud", "json", "debug, info, warn or error"},
		{"info", "xml", "text or json"},
		{"", "json", "debug, info, warn or error"},
	} {
		if _, err := logging.New(nil, c.level, c.format); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%q, %q) = %v, want an error that names %q", c.level, c.format, err, c.want)
		}
	}
}

// People read what a value says of itself, and spans of time with their unit.
func TestValuesInWords(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		var b bytes.Buffer
		log, err := logging.New(&b, "info", format)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("x", "key", zmsg.Key{Type: 7, Zone: 1, ID: "go"}, "took", 1500*time.Millisecond, "none", (*url.URL)(nil), "least", slog.LevelWarn)
		for _, want := range []string{"7/1/go", "1.5s", "null", "WARN"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: %s lacks %q", format, b.String(), want)
			}
		}
	}
}
