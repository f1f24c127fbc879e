// Package logging builds the logger of a node: slog in front, zerolog behind it. Libraries take *slog.Logger; only
// this package and cmd know zerolog.
package logging

import (
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// What zerolog has for the whole process is set before anybody logs: time spans have their unit, and values that have words for
// themselves, such as keys and reasons, are written as these and not as the numbers inside.
func init() { //nolint:gochecknoinits // later would race with loggers of other nodes
	zerolog.DurationFieldFormat = zerolog.DurationFormatString
	plain := zerolog.InterfaceMarshalFunc
	zerolog.InterfaceMarshalFunc = func(v any) ([]byte, error) {
		if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
			return plain(v)
		}
		switch v := v.(type) {
		case json.Marshaler, encoding.TextMarshaler: // as it says
		case fmt.Stringer:
			return plain(v.String())
		}
		return plain(v)
	}
}

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
