package zconsole

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"zgame/internal/adminport"
	"zgame/internal/lograte"
	"zgame/zdiscovery"
	"zgame/zmsg"
)

//go:embed page
var files embed.FS

// MinToken is how long a token is at least, in bytes.
const MinToken = 16

// Config is what New needs. At least one of the tokens is set.
type Config struct {
	// App is the program's name, for the page's title.
	App string
	// ReadToken lets its bearer look; "": nobody. OperatorToken lets him move, drain, kick and call too; "": nobody.
	ReadToken, OperatorToken string
	// Node is the id of the node that serves the console.
	Node string
	// Nodes returns the nodes of the cluster as discovery says. It is called from any goroutine, and must not block.
	Nodes func() []zdiscovery.Node
	// Messages are those that there are forms for.
	Messages *zmsg.Registry
	// Logger gets a line for each action of an operator, and some for wrong tokens; nil discards.
	Logger *slog.Logger
}

// Bounds of what a console does at once. More is refused with 429.
const (
	requestRate  = 100              // requests in a second, of all who look, and of all who act: a page asks for three at most
	requestBurst = 300              // so many at once
	maxRequests  = 32               // asked of the API at once, traces aside
	maxActions   = 16               // actions at once, which readers take no place of
	maxStreams   = 8                // traces and drains that are followed at once
	maxFanOut    = 64               // nodes that are asked at once, by one request
	maxNodes     = 256              // nodes that one request asks
	maxAnswer    = 4 << 20          // bytes of one node's answer
	askTime      = 3 * time.Second  // for a look
	actTime      = 35 * time.Second // for an action; the admin port bounds moves and calls itself
	traceTime    = 10 * time.Minute // for a trace that is followed
	drainTime    = 2 * time.Hour    // for a drain that is watched, or waited for
	traceRate    = 20               // traces that are told in a second; the rest is counted
	writeTimeout = 10 * time.Second // for the page to read what it is told
	maxBody      = 1<<20 + 1        // bytes of a message that is sent: the admin port says what is too much
)

// Console is made by New. Its methods may be called from any goroutine.
type Console struct {
	// Set at construction.
	cfg    Config
	tokens []token
	log    *slog.Logger
	ctx    context.Context //nolint:containedctx // its life: ended by Close
	cancel context.CancelFunc

	asking, acting, streams slots

	wrong, refused lograte.Limiter // lines about wrong tokens, and about readers who want to act
}

// ErrNoToken says that nobody could look.
var ErrNoToken = errors.New("expected console.read_token, console.operator_token, or both: without them nobody could look")

// New returns a console. Errors: what is wrong with the tokens.
func New(cfg Config) (*Console, error) {
	err := CheckTokens(cfg.ReadToken, cfg.OperatorToken)
	if cfg.ReadToken == "" && cfg.OperatorToken == "" {
		err = ErrNoToken
	}
	if err != nil {
		return nil, fmt.Errorf("zconsole: %w", err)
	}
	c := &Console{cfg: cfg, log: cfg.Logger, asking: newSlots(maxRequests), acting: newSlots(maxActions), streams: newSlots(maxStreams)}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.tokens = tokens(cfg.ReadToken, cfg.OperatorToken)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the traces that are followed.
func (c *Console) Close() { c.cancel() }

// Handler serves the page and the API. All that there is stands here, with who may ask for it.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", page())
	look := func(pattern string, f http.HandlerFunc) {
		mux.Handle("GET /api/"+pattern, c.as(reader, c.asking.bound(f)))
	}
	act := func(pattern string, f func(ctx context.Context, r *http.Request) (any, error)) {
		mux.Handle("POST /api/"+pattern, c.as(operator, c.acting.bound(c.action(pattern, f))))
	}
	look("me", c.serveMe)
	look("each/{what}", c.serveEach)
	look("node/{node}/{what}", c.serveNode)
	look("object", c.serveObject)
	look("messages", c.serveMessages)
	look("messages/{message}", c.serveForm)
	mux.Handle("GET /api/trace", c.as(reader, c.streams.bound(c.serveTrace)))
	mux.Handle("GET /api/drain/{node}", c.as(reader, c.streams.bound(c.serveDrain)))
	act("move", c.move)
	act("kick", c.kick)
	act("drain", c.drain)
	act("call", c.call)
	return headers(http.NewCrossOriginProtection().Handler(mux))
}

// headers are on every answer: nothing but this server's own scripts and styles, in nobody's frame, kept by no cache.
func headers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := w.Header().Set
		set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; "+
			"frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'")
		set("X-Content-Type-Options", "nosniff")
		set("X-Frame-Options", "DENY")
		set("Referrer-Policy", "no-referrer")
		set("Cross-Origin-Opener-Policy", "same-origin")
		set("Cross-Origin-Resource-Policy", "same-origin")
		set("Cache-Control", "no-store")
		h.ServeHTTP(w, r)
	})
}

func page() http.Handler {
	sub, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the directory is compiled in
	}
	return http.FileServerFS(sub)
}

// slots are what one sort of requests may take: so many at once, and in a second.
type slots struct {
	taken chan struct{} // holds a token for each request under way
	asked *rate
}

func newSlots(n int) slots { return slots{make(chan struct{}, n), new(rate)} }

// bound lets in as many requests as there is room for. Who does not read his answer is not waited for.
func (s slots) bound(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.asked.take(time.Now()) {
			writeError(w, &apiError{http.StatusTooManyRequests, fmt.Sprintf("the console answers %d requests in a second: try again in a moment", requestRate)})
			return
		}
		select {
		case s.taken <- struct{}{}:
			defer func() { <-s.taken }()
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actTime + writeTimeout)) // streams set their own
			h(w, r)
		default:
			writeError(w, &apiError{http.StatusTooManyRequests, fmt.Sprintf("the console does %d of these at once: try again in a moment", cap(s.taken))})
		}
	}
}

// apiError is a fault with its status.
type apiError struct {
	status int
	text   string
}

func (e *apiError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return &apiError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// writeError writes {"error": ...}: what an admin port says comes with its status.
func writeError(w http.ResponseWriter, err error) {
	status, text := http.StatusBadGateway, err.Error()
	if e, ok := errors.AsType[*apiError](err); ok {
		status = e.status
	} else if e, ok := errors.AsType[*adminport.StatusError](err); ok {
		status = e.Status
		text = strings.Replace(text, e.Error(), e.Text, 1)
	}
	writeJSON(w, status, map[string]string{"error": text})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // it encodes; a reader that is gone needs no answer
}

// cluster is whom to ask.
func (c *Console) cluster() *adminport.Cluster {
	nodes := c.cfg.Nodes()
	return &adminport.Cluster{Nodes: nodes[:min(len(nodes), maxNodes)]}
}

// me is what the page is told of who looks and where.
type me struct {
	Role string `json:"role"`
	Node string `json:"node"`
	App  string `json:"app"`
}

func (c *Console) serveMe(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, me{roleOf(r).String(), c.cfg.Node, c.cfg.App})
}
