package game

import (
	"context"
	"fmt"
	"time"

	"zgame/examples/game/gamepb"
	"zgame/zbots"
	"zgame/zclient"
)

// Bots are scripts for the command bots.
func Bots() []zbots.Script {
	return []zbots.Script{{Name: "roll", Help: "four at each table roll once a second", Run: play}}
}

// play has a bot sit down and roll. The rolls of a table are numbered, so that one that does not come is seen.
func play(ctx context.Context, b *zbots.Bot) error {
	name := fmt.Sprintf("bots-%d", b.Index/4)
	zclient.On(b.Client, func(r *gamepb.Rolled) { b.Got(r.GetTable(), r.GetRoll()) })
	if _, err := zbots.Call[gamepb.Scores](ctx, b, "sit", &gamepb.Sit{Table: name}); err != nil {
		return err
	}
	return b.Every(ctx, time.Second, func(ctx context.Context) error {
		rolled, err := zbots.Call[gamepb.Rolled](ctx, b, "roll", &gamepb.Roll{Table: name})
		if err == nil {
			b.Expect(name, rolled.GetRoll())
		}
		return b.GoOn(err)
	})
}
