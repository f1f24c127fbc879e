package zactortest_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSubscriber(t *testing.T) {
	t.Parallel()
	g, steps := zactortest.NewSteps(t, zactor.Config{})
	news := zactortest.NewSubscriber(t, g, "news", zactortest.Expect[testpb.Note]())
	for _, topic := range []string{"news", "sport"} {
		if err := g.PublishTopic(topic, &testpb.Note{N: int64(len(topic))}); err != nil {
			t.Fatal(err)
		}
	}
	steps.Run()
	if note, _ := zactortest.Receive[testpb.Note](news); note.GetN() != 4 {
		t.Errorf("got %v", note)
	}
	news.None()
}

func TestProbe(t *testing.T) {
	t.Parallel()
	g := zactortest.NewGroup(t, zactor.Config{})
	bank := zactortest.NewProbe(t, g, "bank", zactortest.Expect[testpb.Ping](), zactortest.Expect[testpb.Note]())
	ended := make(chan error, 1)
	for _, fail := range []bool{false, true} {
		go func() {
			pong, err := zactor.Ask[testpb.Pong](context.Background(), bank.Ref(), &testpb.Ping{N: 4})
			if err == nil && pong.GetN() != 8 {
				err = errors.New("wrong answer")
			}
			ended <- err
		}()
		ping, got := zactortest.Receive[testpb.Ping](bank)
		if fail {
			got.Fail(zmsg.ErrBusy)
			if err := <-ended; !errors.Is(err, zmsg.ErrBusy) {
				t.Errorf("got %v", err)
			}
			continue
		}
		got.Reply(&testpb.Pong{N: 2 * ping.GetN()})
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	bank.None()
	if err := bank.Ref().Tell(&testpb.Note{N: 1}); err != nil {
		t.Fatal(err)
	}
	if note, got := zactortest.Receive[testpb.Note](bank); note.GetN() != 1 || got.Reply(&testpb.Pong{}) {
		t.Error("a one-way message was answered")
	}
}
