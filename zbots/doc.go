// Package zbots plays clients: many of them, each by a script in Go, against gates that run. It says how long requests took, from the moment at
// which they were to be made, what of numbered messages was lost, doubled or swapped, and what became of the connections.
//
//	func say(ctx context.Context, b *zbots.Bot) error {
//		zclient.On(b.Client, func(l *chatpb.Line) { b.Got(l.From, l.Number) })
//		if _, err := zbots.Call[chatpb.Joined](ctx, b, "join", &chatpb.Join{Room: "go"}); err != nil {
//			return err
//		}
//		return b.Every(ctx, time.Second, func(ctx context.Context) error {
//			_, err := zbots.Call[chatpb.Said](ctx, b, "say", &chatpb.Say{Room: "go", Text: "hello"})
//			return b.GoOn(err)
//		})
//	}
//
// A program has the command `bots` by zcli.Main(app, zbots.Command(zbots.Script{Name: "say", Run: say})).
package zbots
