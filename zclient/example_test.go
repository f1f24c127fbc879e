package zclient_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
)

// Every failure says whether the request ran.
func ExampleClient_Request() {
	c, err := zclient.New(zclient.Config{URL: "ws://localhost:7000/ws", Token: "ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()
	zclient.On(c, func(line *chatpb.Line) { fmt.Println(line.GetFrom(), line.GetText()) })

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// c.Connect(ctx) has not been called.
	_, err = zclient.Call[chatpb.Said](ctx, c, &chatpb.Say{Room: "go", Text: "hello"})
	fmt.Println(errors.Is(err, zmsg.ErrUnavailable), zmsg.OutcomeOf(err))
	// Output: true not_executed
}
