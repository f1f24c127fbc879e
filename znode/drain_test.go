package znode_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/znode"
	"zgame/zrouter"
)

func post(t *testing.T, url string, header ...string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// twoShelves starts two nodes that host shelves, and know each other.
func twoShelves(t *testing.T) (a, b *znode.Node) {
	t.Helper()
	r := newRig()
	var nodes [2]*znode.Node
	for i, id := range []string{"a", "b"} {
		cfg := r.config(id, shelves)
		cfg.Settings.Gate.Directory = false // there are shelves alone
		nodes[i] = start(t, cfg)
	}
	for _, n := range nodes {
		eventually(t, "they know each other", func() bool {
			return len(n.Nodes()) == 2 && n.Nodes()[0].State == "ready" && n.Nodes()[1].State == "ready"
		})
	}
	return nodes[0], nodes[1]
}

// An operator moves an object; what cannot be is said, with whom to ask.
func TestMoveByAdmin(t *testing.T) {
	t.Parallel()
	a, b := twoShelves(t)
	has, _, err := say(t, a, "x", "1")
	if err != nil {
		t.Fatal(err)
	}
	from, to := a, b
	if has == b.Self().String() {
		from, to = b, a
	}
	at := func(n *znode.Node, path string) string { return "http://" + n.AdminAddr() + path }
	status, body := post(t, at(from, "/objects/7/0/x/move?to="+to.Self().ID))
	if want := fmt.Sprintf(`{"owner":%q,"epoch":%d,"version":2}`+"\n", to.Self().ID, to.Self().Epoch); status != http.StatusOK || body != want {
		t.Errorf("got %d %s, want %s", status, body, want)
	}
	if has, said, err := say(t, from, "x", "2"); err != nil || has != to.Self().String() || len(said) != 2 {
		t.Errorf("at %v: %q, %v", has, said, err)
	}
	for _, c := range []struct {
		path string
		n    *znode.Node
		want int
		says string
	}{
		{"/objects/7/0/x/move", to, http.StatusBadRequest, "expected ?to=NODE"},
		{"/objects/7/0/x/move?to=nobody", to, http.StatusNotFound, `there is no node "nobody"; those that serve: a b`},
		{"/objects/seven/0/x/move?to=a", to, http.StatusBadRequest, "are numbers"},
		{"/objects/7/0/never/move?to=" + from.Self().ID, to, http.StatusNotFound, "not_found"},
		{"/objects/99/0/x/move?to=a", to, http.StatusNotFound, "no node hosts"},
	} {
		if status, body := post(t, at(c.n, c.path)); status != c.want || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %s", c.path, status, body)
		}
	}
	// Who has it not says who has.
	third := from.Self().ID
	if status, body := post(t, at(from, "/objects/7/0/x/move?to="+third)); status != http.StatusConflict || !strings.Contains(body, "ask the node "+to.Self().ID) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := post(t, at(to, "/objects/7/0/x/move?to="+third), "Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Errorf("from another site: %d %s", status, body)
	}
	if status, body := post(t, at(to, "/objects/7/0/x/move?to=")); status != http.StatusOK || !strings.Contains(body, `"owner":"","epoch":0,"version":3`) {
		t.Errorf("given up: %d %s", status, body)
	}
}

func statusOf(t *testing.T, n *znode.Node) (s znode.DrainStatus) {
	t.Helper()
	status, body, _ := get(t, "http://"+n.AdminAddr()+"/drain")
	if err := json.Unmarshal([]byte(body), &s); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	return s
}

// A node that is asked to drain gives its objects to the others, while its clients stay and reach them there; then they are told to go,
// and it stops. How far it is can be asked all the time.
func TestDrain(t *testing.T) {
	t.Parallel()
	const ids = 40
	a, b := twoShelves(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := zrouter.ManagerOf[*chatpb.Members](a.Objects(), 7)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ids {
		if _, err := m.MutableObject(ctx, shelfKey(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	release := make(chan struct{})
	slow := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		slow <- m.Do(ctx, shelfKey("0"), func(*zrouter.Context[*chatpb.Members]) error {
			close(started)
			<-release // holds the drain up: for less than its move may wait
			return nil
		})
	}()
	<-started
	cl, err := zclient.Dial(ctx, zclient.Config{URL: a.GateURL(), Token: "ann", RequestTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	session := cl.Session()
	if s := statusOf(t, a); s.Step != znode.DrainServing || s.Objects != nil || s.Node != a.Self() {
		t.Errorf("before: %+v", s)
	}
	base := "http://" + a.AdminAddr()
	if status, body := post(t, base+"/drain?node=b"); status != http.StatusMisdirectedRequest || !strings.Contains(body, `this is node "a"`) {
		t.Errorf("another node's drain: %d %s", status, body)
	}
	if status, body := post(t, base+"/drain", "Origin", "http://elsewhere.example"); status != http.StatusForbidden {
		t.Errorf("from another page: %d %s", status, body)
	}
	ran := make(chan error, 1)
	go func() {
		err := a.Wait(ctx)
		down, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err == nil {
			err = a.Stop(down)
		}
		ran <- err
	}()
	if status, body := post(t, base+"/drain?follow=soon"); status != http.StatusBadRequest {
		t.Errorf("%d %s", status, body)
	}
	if status, body := post(t, base+"/drain"); status != http.StatusAccepted {
		t.Errorf("%d %s", status, body)
	}
	type answer struct {
		status int
		body   string
	}
	followed := make(chan answer, 1)
	go func() { // ends with the drain
		status, body := post(t, base+"/drain?node=a&follow=10ms")
		followed <- answer{status, body}
	}()
	eventually(t, "all but one are moved", func() bool {
		s := statusOf(t, a)
		return s.Objects != nil && s.Objects.Moved == ids-1
	})
	if s := statusOf(t, a); s.Step != znode.DrainObjects || s.Objects.Phase != zrouter.DrainMoving || s.Objects.Left != 1 || s.Objects.To["b"] != ids-1 {
		t.Errorf("meanwhile: %+v %+v", s, s.Objects)
	}
	var members chatpb.Members
	if err := cl.Request(ctx, &chatpb.Say{Room: "7", Text: "hi"}, &members); err != nil || members.GetRoom() != b.Self().String() {
		t.Errorf("a client of the node: %v, %v", &members, err)
	}
	if got := cl.Session(); got != session {
		t.Errorf("the client was sent away while objects move: it is %v, was %v", got, session)
	}
	close(release)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	if err := <-ran; err != nil {
		t.Errorf("it stops with %v", err)
	}
	f := <-followed
	lines := strings.Split(strings.TrimSpace(f.body), "\n")
	var last znode.DrainStatus
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || f.status != http.StatusAccepted || len(lines) < 2 ||
		last.Objects == nil || last.Objects.Phase != zrouter.DrainDone || last.Objects.Moved != ids {
		t.Errorf("who follows hears at last, %v, of %+v\n%s", err, last.Objects, f.body)
	}
	_ = cl.Close() // says that the gate has closed it
	<-cl.Done()
	s := a.DrainStatus()
	if s.Step != znode.DrainStopped || s.Error != "" || s.Objects.Moved != ids || s.Objects.Left != 0 {
		t.Errorf("afterwards: %+v %+v", s, s.Objects)
	}
	for i := range ids {
		rec, err := b.Store().Read(ctx, shelfKey(fmt.Sprint(i)))
		if err != nil || rec.Own.Node != b.Self() {
			t.Errorf("%d is %v's, %v", i, rec.Own.Node, err)
		}
	}
	eventually(t, "it is gone", func() bool { return len(b.Nodes()) == 1 })
}

// A kind whose code lets its moves take longer than requests wait fails the start.
func TestKindsMovesFitCalls(t *testing.T) {
	t.Parallel()
	cfg := newRig().config("a", znode.App{Name: "slow", Objects: func(n *znode.Node) []zrouter.AnyKind {
		k := shelf(7, "shelf", n).(zrouter.Kind[*chatpb.Members])
		k.Settings.QuiesceTimeout = 3 * time.Second
		return []zrouter.AnyKind{k}
	}})
	n, err := znode.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `kind "shelf": quiesce_timeout 3s and twice store_timeout 4s: expected at most 10s together`) {
		t.Errorf("it starts with %v", err)
	}
}
