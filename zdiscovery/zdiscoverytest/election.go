package zdiscoverytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"zgame/zdiscovery"
)

// electionTests are part of the suite.
var electionTests = []test{
	{"LeadAndResign", testLeadAndResign},
	{"ManyCandidates", testManyCandidates},
	{"CampaignEnds", testCampaignEnds},
	{"LeaderDies", testLeaderDies},
	{"LeaderLeaves", testLeaderLeaves},
	{"LeaderExpires", testLeaderExpires},
	{"LeaderIsCutOff", testLeaderIsCutOff},
	{"CandidateIsCutOff", testCandidateIsCutOff},
	{"ElectionWhileAway", testElectionWhileAway},
}

// lead campaigns until m leads.
func lead(t *testing.T, m zdiscovery.Member, name string) zdiscovery.Leadership {
	t.Helper()
	l, err := m.Campaign(bounded(t), name)
	if err != nil {
		t.Fatalf("%v campaigns for %s: %v", m.Ref(), name, err)
	}
	return l
}

// won is the end of a campaign, with the time at which it was known.
type won struct {
	zdiscovery.Leadership
	err error
	at  time.Time
}

// campaign is lead in the background.
func campaign(ctx context.Context, m zdiscovery.Member, name string) <-chan won {
	ch := make(chan won, 1)
	go func() { // ends with the campaign, which ctx bounds
		l, err := m.Campaign(ctx, name)
		ch <- won{l, err, time.Now()}
	}()
	return ch
}

// follows waits until the campaign is won, and checks that it is a later term than that of old, which was over by then.
func follows(t *testing.T, old zdiscovery.Leadership, ch <-chan won) won {
	t.Helper()
	w := <-ch
	if w.err != nil {
		t.Fatalf("the next in line: %v", w.err)
	}
	if w.Term() <= old.Term() {
		t.Errorf("term %d after %d", w.Term(), old.Term())
	}
	if until := old.Until(); !until.Before(w.at) {
		t.Errorf("the next leads %v before the one before it has to stop", until.Sub(w.at))
	}
	return w
}

// inLine waits until a campaign had the time to be in line: nobody can see that, so it does not lead by then.
func inLine(t *testing.T, ch <-chan won) {
	t.Helper()
	select {
	case w := <-ch:
		t.Fatalf("a second one leads, or does not wait: %v", w.err)
	case <-time.After(200 * time.Millisecond):
	}
}

func leaderIs(t *testing.T, d zdiscovery.Discovery, name string, want zdiscovery.Leader) {
	t.Helper()
	if got, err := d.Leader(bounded(t), name); err != nil || got != want {
		t.Errorf("leader of %s: %+v, %v, want %+v", name, got, err, want)
	}
}

func testLeadAndResign(t *testing.T, f Features) {
	t.Helper()
	ttl := 3 * f.TTL
	a, b := connectTTL(t, f, ttl), connect(t, f)
	m := join(t, a, "n1")
	ctx := bounded(t)
	leaderIs(t, b, "cup", zdiscovery.Leader{})
	for _, name := range []string{"", "a/b"} {
		if _, err := m.Campaign(ctx, name); err == nil {
			t.Errorf("a campaign for %q", name)
		}
		if _, err := b.Leader(ctx, name); err == nil {
			t.Errorf("a leader of %q", name)
		}
	}
	cup := lead(t, m, "cup")
	other := lead(t, m, "cup2") // another name, though it begins with the first
	leaderIs(t, b, "cup", zdiscovery.Leader{Node: m.Ref(), Term: cup.Term()})
	leaderIs(t, b, "cup2", zdiscovery.Leader{Node: m.Ref(), Term: other.Term()})
	if _, err := m.Campaign(ctx, "cup"); !errors.Is(err, zdiscovery.ErrCampaigning) {
		t.Errorf("a second campaign: %v, want ErrCampaigning", err)
	}
	first := cup.Until()
	if until := time.Until(first); until > ttl {
		t.Errorf("may act for another %v, with a lease of %v", until, ttl)
	}
	for end := time.Now().Add(within); !cup.Until().After(first); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the time to act does not move on")
		}
	}
	select {
	case <-cup.Lost():
		t.Fatal("lost while it is renewed")
	default:
	}
	for range 2 {
		if err := cup.Resign(ctx); err != nil {
			t.Errorf("resign: %v", err)
		}
	}
	wait(t, "the end is told", cup.Lost())
	if until := cup.Until(); until.After(time.Now()) {
		t.Errorf("may act for another %v after it resigned", time.Until(until))
	}
	leaderIs(t, b, "cup", zdiscovery.Leader{})
	again := lead(t, m, "cup")
	if again.Term() <= cup.Term() {
		t.Errorf("term %d after %d", again.Term(), cup.Term())
	}
	if err := cup.Resign(ctx); err != nil {
		t.Errorf("the old one resigns: %v", err)
	}
	leaderIs(t, b, "cup", zdiscovery.Leader{Node: m.Ref(), Term: again.Term()})
	select {
	case <-again.Lost():
		t.Error("the old one's resignation touched the new")
	case <-other.Lost():
		t.Error("the end of one name touched another")
	default:
	}
}

// testManyCandidates: 16 candidates, each of which leads again and again, some giving up in between. One leads at a time, and
// the terms rise in the order in which they lead.
func testManyCandidates(t *testing.T, f Features) {
	t.Helper()
	const candidates, clients, times = 16, 4, 4
	var oracle struct {
		sync.Mutex
		leads   string
		term    uint64
		elected int
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*within)
	defer cancel()
	var wg sync.WaitGroup
	var discs []zdiscovery.Discovery
	for range clients {
		discs = append(discs, connect(t, f))
	}
	for i := range candidates {
		id := fmt.Sprintf("n%d", i)
		m := join(t, discs[i%clients], id)
		wg.Go(func() {
			for n := range times {
				if (i+n)%3 == 0 { // impatient at first
					short, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
					l, err := m.Campaign(short, "cup")
					cancel()
					if err == nil {
						err = l.Resign(ctx)
					} else if errors.Is(err, context.DeadlineExceeded) {
						err = nil
					}
					if err != nil {
						t.Errorf("%s, in a hurry: %v", id, err)
					}
				}
				l, err := m.Campaign(ctx, "cup")
				if err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				oracle.Lock()
				if oracle.leads != "" {
					t.Errorf("%s leads, and so does %s", id, oracle.leads)
				}
				if l.Term() <= oracle.term {
					t.Errorf("%s has term %d after %d", id, l.Term(), oracle.term)
				}
				oracle.leads, oracle.term = id, l.Term()
				oracle.elected++
				oracle.Unlock()
				time.Sleep(time.Millisecond)
				oracle.Lock()
				select {
				case <-l.Lost(): // its lease ended, on a slow machine: the next may be there
				default:
					oracle.leads = ""
				}
				oracle.Unlock()
				if err := l.Resign(ctx); err != nil {
					t.Errorf("%s resigns: %v", id, err)
				}
			}
		})
	}
	wg.Wait()
	if oracle.elected != candidates*times {
		t.Errorf("%d times somebody led, want %d", oracle.elected, candidates*times)
	}
	leaderIs(t, discs[0], "cup", zdiscovery.Leader{})
}

// testCampaignEnds: a campaign ends with its context, its membership, or its Disc, and is in nobody's way then.
func testCampaignEnds(t *testing.T, f Features) {
	t.Helper()
	a, b := connect(t, f), f.Open(t, 2*f.TTL)
	leader, impatient, leaving, next := join(t, a, "n1"), join(t, a, "n2"), join(t, a, "n3"), join(t, a, "n5")
	expiring := join(t, connectTTL(t, f, 2*f.TTL), "n4") // renews soon, and learns
	closing := join(t, b, "n6")
	l := lead(t, leader, "cup")
	ctx := bounded(t)
	short, cancel := context.WithCancel(ctx)
	line := []<-chan won{campaign(short, impatient, "cup"), campaign(ctx, leaving, "cup"), campaign(ctx, expiring, "cup"), campaign(ctx, closing, "cup")}
	for _, ch := range line {
		inLine(t, ch)
	}
	nextWon := campaign(ctx, next, "cup")
	inLine(t, nextWon)
	ended := func(what string, ch <-chan won, want error) {
		t.Helper()
		if w := <-ch; !errors.Is(w.err, want) {
			t.Errorf("%s: %v, want %v", what, w.err, want)
		}
	}
	cancel()
	ended("its context ended", line[0], context.Canceled)
	if _, err := impatient.Campaign(short, "cup"); !errors.Is(err, context.Canceled) {
		t.Errorf("a campaign whose context has ended: %v", err)
	}
	if err := leaving.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	ended("it left", line[1], zdiscovery.ErrLost)
	f.Expire(t, expiring.Ref())
	ended("its lease ended", line[2], zdiscovery.ErrLost)
	closeDisc(t, b)
	ended("closed", line[3], zdiscovery.ErrClosed)
	for what, m := range map[string]zdiscovery.Member{"left": leaving, "lost": expiring} {
		if _, err := m.Campaign(ctx, "cup"); !errors.Is(err, zdiscovery.ErrLost) {
			t.Errorf("a campaign of a member that %s: %v, want ErrLost", what, err)
		}
	}
	if _, err := b.Leader(ctx, "cup"); !errors.Is(err, zdiscovery.ErrClosed) {
		t.Errorf("leader, after close: %v, want ErrClosed", err)
	}
	if err := l.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	follows(t, l, nextWon)
}

// testLeaderDies: exactly one leads again when the leader's lease has ended.
func testLeaderDies(t *testing.T, f Features) {
	t.Helper()
	ttl := 2 * f.TTL
	a, b := f.Open(t, ttl), connect(t, f)
	l := lead(t, join(t, a, "n1"), "cup")
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	second, third := campaign(ctx, join(t, b, "n2"), "cup"), campaign(ctx, join(t, b, "n3"), "cup")
	inLine(t, second)
	inLine(t, third)
	died := time.Now()
	closeDisc(t, a) // as a killed process: renews no more
	wait(t, "the end is told", l.Lost())
	_ = l.Resign(ctx) // has nobody to tell, and does no harm
	var w won
	select {
	case w = <-second:
		second = third
	case w = <-third:
	}
	ch := make(chan won, 1)
	ch <- w
	follows(t, l, ch)
	t.Logf("somebody leads %v after the death, with leases of %v", w.at.Sub(died).Round(time.Millisecond), ttl)
	inLine(t, second) // the other one waits
	if err := w.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	follows(t, w, second)
}

func testLeaderLeaves(t *testing.T, f Features) {
	t.Helper()
	a, b := connect(t, f), connect(t, f)
	m := join(t, a, "n1")
	l := lead(t, m, "cup")
	ctx := bounded(t)
	next := campaign(ctx, join(t, b, "n2"), "cup")
	inLine(t, next)
	if err := m.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Lost():
	default:
		t.Error("leads on after Leave")
	}
	follows(t, l, next)
	if err := l.Resign(ctx); err != nil {
		t.Errorf("resigned after Leave: %v", err)
	}
}

func testLeaderExpires(t *testing.T, f Features) {
	t.Helper()
	a, b := connectTTL(t, f, middle), connect(t, f)
	m := join(t, a, "n1")
	l := lead(t, m, "cup")
	ctx := bounded(t)
	next := campaign(ctx, join(t, b, "n2"), "cup")
	inLine(t, next)
	f.Expire(t, m.Ref()) // by hand, not by time: what it may do until it hears of it, the term tells
	wait(t, "the leader learns of it", l.Lost())
	if w := <-next; w.err != nil || w.Term() <= l.Term() {
		t.Errorf("the next: %v", w.err)
	}
	again := join(t, a, "n1")
	back := campaign(ctx, again, "cup")
	inLine(t, back)
}

// testLeaderIsCutOff: a leader that cannot reach the service has to stop before the next one leads, by one clock.
func testLeaderIsCutOff(t *testing.T, f Features) {
	t.Helper()
	if f.Cut == nil {
		t.Log("left out: a client cannot be cut off")
		return
	}
	a, b := connectTTL(t, f, 2*f.TTL), connect(t, f)
	m := join(t, a, "n1")
	l := lead(t, m, "cup")
	ctx := bounded(t)
	second := join(t, b, "n2")
	next := campaign(ctx, second, "cup")
	inLine(t, next)
	f.Cut(t, a, true)
	cut := time.Now()
	w := follows(t, l, next)
	t.Logf("has to stop %v after the cut, the next leads after %v", l.Until().Sub(cut).Round(time.Millisecond), w.at.Sub(cut).Round(time.Millisecond))
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := l.Resign(short); !errors.Is(err, zdiscovery.ErrUnavailable) {
		t.Errorf("resigned though it is cut off: %v, want ErrUnavailable", err)
	}
	leaderIs(t, b, "cup", zdiscovery.Leader{Node: second.Ref(), Term: w.Term()})
	f.Cut(t, a, false)
	wait(t, "it learns that its membership is lost", m.Lost())
	wait(t, "and that it does not lead", l.Lost())
	if _, err := m.Campaign(ctx, "cup"); !errors.Is(err, zdiscovery.ErrLost) {
		t.Errorf("campaign of the lost: %v", err)
	}
	select {
	case <-w.Lost():
		t.Error("the return of the old touched the new")
	default:
	}
	back := campaign(ctx, join(t, a, "n1"), "cup")
	inLine(t, back)
	if err := w.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	follows(t, w, back)
}

// testCandidateIsCutOff: what a candidate does while it is cut off, above all giving up, is made good when it is back; the line
// does not stop at it.
func testCandidateIsCutOff(t *testing.T, f Features) {
	t.Helper()
	if f.Cut == nil {
		t.Log("left out: a client cannot be cut off")
		return
	}
	a, b := connect(t, f), connect(t, f)
	gone, back, next := join(t, a, "n1"), join(t, a, "n2"), join(t, b, "n3")
	leader := join(t, b, "n4")
	l := lead(t, leader, "cup")
	ctx := bounded(t)
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	goneWon := campaign(short, gone, "cup")
	inLine(t, goneWon)
	f.Cut(t, a, true)
	backWon := campaign(ctx, back, "cup") // begins while it is cut off
	inLine(t, backWon)
	cancel()
	if w := <-goneWon; !errors.Is(w.err, context.Canceled) {
		t.Errorf("gave up: %v", w.err)
	}
	nextWon := campaign(ctx, next, "cup")
	inLine(t, nextWon)
	f.Cut(t, a, false)
	if err := l.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	second := follows(t, l, nextWon) // the one before it has given up, or has lost its lease on a slow machine
	if err := second.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case w := <-backWon:
		if w.err == nil && w.Term() <= second.Term() || w.err != nil && !errors.Is(w.err, zdiscovery.ErrLost) {
			t.Errorf("the one that began while it was cut off: %v", w.err)
		}
	case <-ctx.Done():
		t.Error("the one that began while it was cut off waits for ever")
	}
}

// testElectionWhileAway: a short absence of the service ends no leadership; a campaign that begins meanwhile goes on when it is
// back.
func testElectionWhileAway(t *testing.T, f Features) {
	t.Helper()
	if f.SetUp == nil {
		t.Log("left out: the service cannot be taken away")
		return
	}
	a, b := connect(t, f), connect(t, f)
	m := join(t, a, "n1")
	l := lead(t, m, "cup")
	ctx := bounded(t)
	second, third := join(t, b, "n2"), join(t, b, "n3")
	ch := campaign(ctx, second, "cup")
	inLine(t, ch)
	f.SetUp(t, false)
	late := campaign(ctx, third, "other")
	inLine(t, late)
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := b.Leader(short, "cup"); !errors.Is(err, zdiscovery.ErrUnavailable) {
		t.Errorf("leader while away: %v, want ErrUnavailable", err)
	}
	f.SetUp(t, true)
	if w := <-late; w.err != nil && !errors.Is(w.err, zdiscovery.ErrLost) {
		t.Errorf("begun while away: %v", w.err)
	}
	select {
	case <-m.Lost(): // longer than the lease on this machine
		t.Log("the lease ended meanwhile")
	case w := <-ch:
		if w.err == nil && w.Term() <= l.Term() {
			t.Errorf("term %d after %d", w.Term(), l.Term())
		}
		t.Logf("the lease ended meanwhile: %v", w.err)
	default:
		if err := l.Resign(ctx); err != nil {
			t.Errorf("resign: %v", err)
		}
		if w := <-ch; w.err == nil && w.Term() <= l.Term() || w.err != nil && !errors.Is(w.err, zdiscovery.ErrLost) {
			t.Errorf("the next: %v", w.err)
		}
	}
}
