// Package logging builds the logger of a node: slog in front, zerolog behind it. Libraries take *slog.Logger; only
// this package and cmd know zerolog.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// New returns a logger that writes lines of format "json" or "text" (for people) at level and above to w.
// level is debug, info, warn or error. An unknown level or format is an error that names the known ones.
func New(w io.Writer, level, format string) (*slog.Logger, error) {
	zl, err := zerolog.ParseLevel(strings.ToLower(level))
	if err != nil || zl < zerolog.DebugLevel || zl > zerolog.ErrorLevel {
		return nil, fmt.Errorf("log level %q: expected debug, info, warn or error", level)
	}
	switch format {
	case "json":
	case "text":
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: true}
	default:
		return nil, fmt.Errorf("log format %q: expected text or json", format)
	}
	return slog.New(zerolog.NewSlogHandler(zerolog.New(w).Level(zl).With().Timestamp().Logger())), nil
}
