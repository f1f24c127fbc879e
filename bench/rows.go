package bench

import "time"

// Row is one line of the table.
type Row struct {
	Key     string // names it on the command line and in JSON
	Work    string // what is done
	Unit    string // of the measured values
	Base    string // the system whose value is 1.0; "" where the value itself counts
	Subject string // the system that Must and Aim are about
	Others  bool   // peers and baselines are measured too, not only Base and Subject
	Once    bool   // measured in the first round only
	Must    Limit  // what Subject's ratio, or value, must not exceed
	Aim     Limit

	measure func(m *Meter, s System) (float64, error)
}

// Limit is an upper limit, if there is one.
type Limit struct {
	Value float64
	Set   bool
}

func limit(v float64) Limit { return Limit{v, true} }

// Units.
const (
	nanoseconds  = "ns"
	microseconds = "us"
	bytesUnit    = "B"
	allocations  = "allocs"
	percent      = "%"
	times        = "x"
)

// Systems returns all that can be measured, the baselines first.
func Systems() []System {
	return []System{RawSwap{}, Channel{}, Protoactor{}, Zactor{}, Zactor{Observed: true}}
}

// Rows returns the table.
func Rows() []Row {
	base, sub, seen, ch := RawSwap{}.Name(), Zactor{}.Name(), Zactor{Observed: true}.Name(), Channel{}.Name()
	timed := func(key string, queue func(m *Meter) int, prepare func(m *Meter) func(rt Runtime) (job, error)) func(*Meter, System) (float64, error) {
		return func(m *Meter, s System) (float64, error) { return m.perOp(key, s, queue(m), prepare(m)) }
	}
	usual := func(*Meter) int { return defaultQueue }
	all := func(m *Meter) int { return m.Flood }
	fixed := func(prepare func(rt Runtime) (job, error)) func(*Meter) func(rt Runtime) (job, error) {
		return func(*Meter) func(rt Runtime) (job, error) { return prepare }
	}
	floods := func(m *Meter) func(rt Runtime) (job, error) { return flood(m.Flood) }
	ratio := func(key, work string, must, aim float64, measure func(*Meter, System) (float64, error)) Row {
		return Row{Key: key, Work: work, Unit: nanoseconds, Base: base, Subject: sub, Others: true, Must: limit(must), Aim: limit(aim), measure: measure}
	}
	value := func(key, work, unit string, must, aim float64, measure func(*Meter, System) (float64, error)) Row {
		return Row{Key: key, Work: work, Unit: unit, Subject: sub, Others: true, Must: limit(must), Aim: limit(aim), measure: measure}
	}
	observed := func(key, work string, must float64, measure func(*Meter, System) (float64, error)) Row {
		return Row{Key: key, Work: work, Unit: nanoseconds, Base: sub, Subject: seen, Must: limit(must), measure: measure}
	}

	flooded := ratio("flood", "tell 1->1, unbounded flood", 1.4, 1.0, timed("flood", all, floods))
	flooded.Base = ch
	busy := ratio("flood-busy", "tell 1->1, flood, sender yields on busy", 0, 0, timed("flood-busy", usual, floods))
	busy.Base, busy.Must, busy.Aim = ch, Limit{}, Limit{}
	fresh := value("bytes-fresh", "bytes, idle actor, never told", bytesUnit, 500, 350,
		func(m *Meter, s System) (float64, error) { return m.bytes(s, false) })
	fair := value("fairness", "ask p99, 2 x GOMAXPROCS handlers blocked / none", times, 3, 0, (*Meter).fairness)
	fair.Aim = Limit{}
	idle := value("idle", "100,000 idle actors, CPU of one core", percent, 1, 0, (*Meter).idle)
	idle.Aim, idle.Once = Limit{}, true
	p50 := func(m *Meter, s System) (float64, error) { return m.quantile(s, 0.5) }
	tight := ratio("tell-1000-tight", "tell round robin over 1,000, <= 1,024 unhandled by all", 0, 0, timed("tell-1000-tight", usual, fixed(tell(1, 1000, window))))
	tight.Must, tight.Aim = Limit{}, Limit{}
	one := fixed(tell(1, 1, window))

	return []Row{
		ratio("tell", "tell 1->1, <= 1,024 unhandled", 1.5, 1.2, timed("tell", usual, one)),
		flooded,
		busy,
		ratio("tell-8", "tell 8->1, <= 1,024 unhandled", 1.8, 1.2, timed("tell-8", usual, fixed(tell(8, 1, window)))),
		ratio("tell-1000", "tell round robin over 1,000, <= 1,024 unhandled by each", 0.6, 0.2, timed("tell-1000", usual, fixed(tell(1, 1000, 1000*window)))),
		tight,
		ratio("ping-pong", "ping-pong", 1.0, 0.8, timed("ping-pong", usual, fixed(pingPong))),
		ratio("ask", "ask, one at a time, p50", 1.4, 1.1, p50),
		ratio("ask-64", "ask, 64 callers", 1.3, 0.9, timed("ask-64", usual, fixed(ask(64)))),
		value("spawn", "spawn one of 100,000", microseconds, 1.7, 1.1, (*Meter).spawn),
		fresh,
		value("bytes", "bytes, idle actor, told once", bytesUnit, 500, 350,
			func(m *Meter, s System) (float64, error) { return m.bytes(s, true) }),
		ratio("restart", "panic -> new instance -> next message", 4, 2, timed("restart", usual, fixed(restart))),
		value("tell-allocs", "allocations, tell", allocations, 0, 0,
			func(m *Meter, s System) (float64, error) { return m.mallocs(s, tell(1, 1, window)) }),
		value("ask-allocs", "allocations, ask", allocations, 1, 0,
			func(m *Meter, s System) (float64, error) { return m.mallocs(s, ask(1)) }),
		observed("tell-observed", "tell 1->1, metrics and tracing on / off", 1.5, timed("tell-observed", usual, one)),
		observed("ask-observed", "ask p50, metrics and tracing on / off", 1.2, p50),
		fair,
		idle,
	}
}

// Shortest is a Meter for tests of the workloads themselves.
func Shortest() *Meter {
	return &Meter{Time: 2 * time.Millisecond, Idle: 10 * time.Millisecond, Population: 1000, Flood: 5000}
}
