package chat

import (
	"zgame/examples/web"
	"zgame/znode"
	"zgame/zrouter"
)

// Options are what a program decides about its chat. The zero Options are good.
type Options struct {
	// Rate is how many lines a user may say in a room in a second, and whisper; Burst how many at once. Default to 5 and 20. A Rate below 0 is no limit.
	Rate, Burst float64
	// Members is how many users a room may have. Defaults to 1000.
	Members int
	// Clean, if set, makes of what a user says what others read, or refuses it with an error that he is told: the place for a filter of bad
	// words. It runs in a turn of the room, or of the user's box, and must not wait.
	Clean func(user, text string) (string, error)
	// Blocked, if set, tells then, in a later turn of c or at once, whether by does not want to hear what user whispers.
	Blocked func(c *box, by, user string, then func(c *box, blocked bool, err error))
}

func (o Options) withDefaults() Options {
	if o.Rate == 0 {
		o.Rate = 5
	}
	if o.Burst == 0 {
		o.Burst = 20
	}
	if o.Members == 0 {
		o.Members = 1000
	}
	return o
}

func (o Options) pace() pace { return pace{o.Rate, o.Burst} }

// check returns what of a text others read.
func (o Options) check(user, text, once string) (string, error) {
	if err := checkText(text, once); err != nil || o.Clean == nil {
		return text, err
	}
	text, err := o.Clean(user, text)
	if err != nil {
		return "", err
	}
	return text, checkText(text, once)
}

// App returns the example as a program for zcli.Main.
func App() znode.App { return With(Options{}) }

// With is App with options.
func With(o Options) znode.App {
	return znode.App{
		Name:    "zgame chat",
		Page:    web.Page(),
		Objects: func(*znode.Node) []zrouter.AnyKind { return []zrouter.AnyKind{Rooms(o), Boxes(o)} },
	}
}
