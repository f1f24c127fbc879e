// Package bots has the scripts of the chat example for the command bots.
package bots

import (
	"context"
	"fmt"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zbots"
	"zgame/zclient"
)

// Scripts are people who talk.
func Scripts() []zbots.Script {
	return []zbots.Script{{Name: "talk", Help: "ten people in each room say a line every two seconds", Run: talk}}
}

// talk has a bot join a room, and speak. The lines of a room are numbered, so that what does not come is seen.
func talk(ctx context.Context, b *zbots.Bot) error {
	room := fmt.Sprintf("bots-%d", b.Index/10)
	zclient.On(b.Client, func(l *chatpb.Line) { b.Got(l.GetRoom(), l.GetSeq()) })
	if _, err := zbots.Call[chatpb.Joined](ctx, b, "join", &chatpb.Join{Room: room}); err != nil {
		return err
	}
	return b.Every(ctx, 2*time.Second, func(ctx context.Context) error {
		said, err := zbots.Call[chatpb.Said](ctx, b, "say", &chatpb.Say{Room: room, Text: fmt.Sprintf("hello from %s", b.Name)})
		if err == nil {
			b.Expect(room, said.GetSeq())
		}
		return b.GoOn(err)
	})
}
