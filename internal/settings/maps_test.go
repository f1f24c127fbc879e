package settings

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

type kind struct {
	Delay     time.Duration `yaml:"delay" help:"of a kind"`
	SaveDelay time.Duration `yaml:"save_delay"`
	Max       int           `yaml:"max"`
}

type router struct {
	kind
	Kinds map[string]kind `yaml:"kinds"`
}

type nested struct {
	Logic struct {
		Router router `yaml:"router"`
	} `yaml:"logic"`
	Last string `yaml:"last"`
}

func TestMaps(t *testing.T) {
	text := "logic:\n  router:\n    delay: 1s\n    kinds:\n      room: &room\n        save_delay: 2s\n      big-room: *room\n      empty:\nlast: x\n"
	env := []string{"Z_LOGIC_ROUTER_KINDS_BIG_ROOM_MAX=5", "Z_LOGIC_ROUTER_KINDS_USER_SAVE_DELAY=3s", "Z_LOGIC_ROUTER_MAX=9"}
	var s nested
	s.Logic.Router.Kinds = map[string]kind{"user": {Max: 1}}
	before := s.Logic.Router.Kinds
	if err := Load(&s, []byte(text), "f", env, "Z"); err != nil {
		t.Fatal(err)
	}
	want := map[string]kind{
		"room": {SaveDelay: 2 * time.Second}, "big-room": {SaveDelay: 2 * time.Second, Max: 5}, "empty": {}, "user": {Max: 1, SaveDelay: 3 * time.Second},
	}
	if got := s.Logic.Router; !reflect.DeepEqual(got.Kinds, want) || got.Delay != time.Second || got.Max != 9 || s.Last != "x" {
		t.Errorf("got %+v", s)
	}
	if len(before) != 1 || before["user"] != (kind{Max: 1}) {
		t.Errorf("the map that was there has changed: %v", before)
	}
	printed := Text(&s)
	if strings.Contains(printed, "empty") || strings.Count(printed, "logic:") != 1 || !strings.Contains(printed, "big-room:") {
		t.Errorf("text:\n%s", printed)
	}
	var again nested
	if err := Load(&again, []byte(printed), "f", nil, "Z"); err != nil {
		t.Fatal(err)
	}
	delete(want, "empty") // it said nothing
	if !reflect.DeepEqual(again.Logic.Router.Kinds, want) || again.Logic.Router.kind != s.Logic.Router.kind {
		t.Errorf("its text loads as %+v", again)
	}
}

func TestFaultsInMaps(t *testing.T) {
	for text, want := range map[string]string{
		"logic:\n  router:\n    kinds:\n      room:\n        save_dely: 1s\n": "f:5: unknown key logic.router.kinds.room.save_dely, did you mean logic.router.kinds.room.save_delay?",
		"logic:\n  router:\n    kinds:\n      room: 5\n":                      "f:4: logic.router.kinds.room: expected a block of settings",
		"logic:\n  router:\n    kinds: 5\n":                                   "f:3: logic.router.kinds: expected a block of settings",
		"logic:\n  router:\n    kinds:\n      room:\n        max: many\n":     `logic.router.kinds.room.max: "many" is not valid; expected a whole number`,
	} {
		var s nested
		if err := Load(&s, []byte(text), "f", nil, "Z"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	var s nested
	if err := Load(&s, []byte("logic:\n  router:\n    kinds:\n"), "f", []string{"Z_LOGIC_ROUTER_KINDS_ROOM=1"}, "Z"); err == nil || !strings.Contains(err.Error(), "unknown variable") {
		t.Errorf("a variable without a setting: %v", err)
	}
}
