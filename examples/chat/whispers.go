package chat

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zuser"
)

// BoxType is the number of the boxes in keys; the id is the user's.
const BoxType = 101

type box = zrouter.Context[*chatpb.Box]

var errNobody = zmsg.Errorf(zmsg.Code(chatpb.Code_CODE_NOBODY), "nobody of that name has been here")

// Boxes is the kind of what people whisper: one box for each user, of what he said and heard. A whisper is saved in the box of the other one first, then in
// the sender's, then answered: whoever does not get the answer sends it again, and it is kept once.
func Boxes(o Options) zrouter.Kind[*chatpb.Box] {
	o = o.withDefaults()
	return zrouter.Kind[*chatpb.Box]{
		Type: BoxType, Name: "whispers", Version: 1,
		Create: func(zmsg.Key) (*chatpb.Box, error) { return &chatpb.Box{}, nil },
		Handlers: []zrouter.Handler[*chatpb.Box]{
			zrouter.Handle(o.whisper, zrouter.FromClients()), zrouter.Handle(whispers, zrouter.FromClients(), zrouter.Durable()), zrouter.Handle(o.deliver),
		},
	}
}

// whisper is what the box's user says. What he whispers to another comes in order.
func (o Options) whisper(c *box, req *chatpb.Whisper) (*chatpb.Whispered, error) {
	text, err := o.check(c.User(), req.GetText(), req.GetOnce())
	if err != nil {
		return nil, err
	}
	s := c.State()
	said := &chatpb.Whispered{From: c.User(), To: req.GetTo(), Text: text, Once: req.GetOnce(), AtMs: c.Now().UnixMilli()}
	if s.Paces == nil {
		s.Paces = make(map[string]*chatpb.Pace)
	}
	if !kept(s, said) && !o.pace().take(s.GetPaces(), c.User(), said.GetAtMs()) {
		return nil, errTooFast
	}
	owed := c.Defer()
	zrouter.Then(c, c.Object(zmsg.Key{Type: BoxType, ID: req.GetTo()}), &chatpb.Deliver{To: req.GetTo(), Whisper: said}, func(c *box, _ *chatpb.Delivered, err error) {
		if err != nil {
			owed.Fail(err)
			return
		}
		c.State().Opened = true
		keep(c, said, func(*box) { owed.Reply(said) })
	})
	return nil, nil
}

// deliver is what somebody whispers to the box's user: his clients are pushed it, wherever they are. What he does not want to hear is dropped, and nobody is told.
func (o Options) deliver(c *box, m *chatpb.Deliver) (*chatpb.Delivered, error) {
	if !c.State().GetOpened() {
		return nil, errNobody
	}
	owed := c.Defer()
	take := func(c *box, blocked bool, err error) {
		switch {
		case err != nil:
			owed.Fail(err)
		case blocked:
			owed.Reply(&chatpb.Delivered{})
		default:
			keep(c, m.GetWhisper(), func(c *box) {
				_ = zuser.Push(c, c.Key().ID, m.GetWhisper()) // a client that misses it asks for all
				owed.Reply(&chatpb.Delivered{})
			})
		}
	}
	if o.Blocked == nil {
		take(c, false, nil)
	} else {
		o.Blocked(c, c.Key().ID, m.GetWhisper().GetFrom(), take)
	}
	return nil, nil
}

// whispers answers with all that the box has.
func whispers(c *box, _ *chatpb.Whispers) (*chatpb.WhispersKept, error) {
	if s := c.State(); !s.GetOpened() {
		s.Opened = true
		c.Dirty()
	}
	return &chatpb.WhispersKept{Whispers: slices.Clone(c.State().GetWhispers())}, nil
}

func kept(s *chatpb.Box, w *chatpb.Whispered) bool {
	return w.GetOnce() != "" && slices.ContainsFunc(s.GetWhispers(), func(o *chatpb.Whispered) bool { return o.GetOnce() == w.GetOnce() && o.GetFrom() == w.GetFrom() })
}

// keep puts w into the box, where it is not there already, and goes on when it is saved.
func keep(c *box, w *chatpb.Whispered, then func(c *box)) {
	if s := c.State(); !kept(s, w) {
		s.Whispers, s.Size = append(s.Whispers, w), s.GetSize()+uint32(proto.Size(w))
		for len(s.GetWhispers()) > keptLines || s.GetSize() > keptBytes {
			s.Size -= uint32(proto.Size(s.GetWhispers()[0]))
			s.Whispers = slices.Delete(s.Whispers, 0, 1)
		}
		c.Dirty()
	}
	c.AfterSave(then)
}
