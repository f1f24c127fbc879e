package game

import (
	"fmt"
	"regexp"

	"google.golang.org/protobuf/proto"

	"zgame/examples/game/gamepb"
	"zgame/zmsg"
	"zgame/zrouter"
)

// TableType is the number of the tables in keys; the id is the table's name.
const TableType = 100

type table = zrouter.Context[*gamepb.TableState]

var (
	tableName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
	errName   = zmsg.Errorf(zmsg.CodeApplication, "a table is named by 1 to 32 letters, digits, '-' or '_'")
)

// Tables is the kind: one object for each table, made by the first who asks for it. It lives on one node, is found from all, and moves while people play.
func Tables() zrouter.Kind[*gamepb.TableState] {
	client := []zrouter.HandlerOption{zrouter.FromClients(), zrouter.Durable()} // answers wait for the save
	return zrouter.Kind[*gamepb.TableState]{
		Type: TableType, Name: "tables", Version: 2,
		Create:   create,
		Migrate:  migrate,
		Handlers: []zrouter.Handler[*gamepb.TableState]{zrouter.Handle(sit, client...), zrouter.Handle(roll, client...)},
	}
}

func create(k zmsg.Key) (*gamepb.TableState, error) {
	if !tableName.MatchString(k.ID) {
		return nil, errName
	}
	return &gamepb.TableState{}, nil
}

// migrate makes a state of what an older version of the program has saved. The next change saves it as it is now.
func migrate(from uint32, raw []byte) (*gamepb.TableState, error) {
	if from != 1 {
		return nil, fmt.Errorf("a table of version %d: expected 1 or 2", from)
	}
	var old gamepb.TableStateV1
	if err := proto.Unmarshal(raw, &old); err != nil {
		return nil, err
	}
	s := &gamepb.TableState{}
	for _, r := range old.GetRolls() {
		score(s, r.GetBy(), r.GetValue())
	}
	return s, nil
}

// score counts a roll.
func score(s *gamepb.TableState, user string, value uint32) {
	if s.Scores == nil {
		s.Scores = map[string]uint64{}
	}
	s.Rolls++
	s.Scores[user] += uint64(value)
}

// sit binds the client to the table: it gets the table's pushes, wherever that moves.
func sit(c *table, _ *gamepb.Sit) (*gamepb.Scores, error) {
	if err := c.Bind(c.Session()); err != nil {
		return nil, err
	}
	s := c.State()
	return &gamepb.Scores{Table: c.Key().ID, Rolls: s.GetRolls(), Of: s.GetScores(), Node: c.Self().Address().Node.ID}, nil
}

func roll(c *table, _ *gamepb.Roll) (*gamepb.Rolled, error) {
	s, value := c.State(), c.Rand().Uint32N(6)+1
	score(s, c.User(), value)
	rolled := &gamepb.Rolled{Table: c.Key().ID, Roll: s.GetRolls(), By: c.User(), Value: value, Score: s.GetScores()[c.User()]}
	c.Dirty()
	c.AfterSave(func(c *table) { // so that nobody hears of a roll that a crash takes back
		if err := c.PushAll(rolled); err != nil {
			c.Logger().Warn("not pushed", "table", c.Key().ID, "err", err)
		}
	})
	return rolled, nil
}
