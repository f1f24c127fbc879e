package chat

import (
	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zuser"
)

// whispers takes what one user says to another, at the node of his gate, and hands it to the directory of users, which knows where the other one is.
type whispers struct {
	Options

	paces map[string]*chatpb.Pace
}

// Handlers says what the actor understands.
func (w *whispers) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(w.whisper, zactor.FromClients())}
}

// whisper answers when the text is on its way to all clients of the user, and with not_in_server where he has none. What one user
// whispers to another comes in order.
func (w *whispers) whisper(c *zactor.Context, req *chatpb.Whisper) (*chatpb.Whispered, error) {
	text, err := w.check(c.User(), req.GetText(), req.GetOnce())
	if err != nil {
		return nil, err
	}
	if !w.pace().take(w.paces, c.User(), c.Now().UnixMilli()) {
		return nil, errTooFast
	}
	said := &chatpb.Whispered{From: c.User(), To: req.GetTo(), Text: text, Once: req.GetOnce(), AtMs: c.Now().UnixMilli()}
	owed := c.Defer()
	return nil, zuser.PushThen(c, req.GetTo(), said, func(_ *zactor.Context, err error) {
		if err != nil {
			owed.Fail(err)
			return
		}
		owed.Reply(said)
	})
}
