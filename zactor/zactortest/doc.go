// Package zactortest helps to test actors: a group that ends with the test, a probe that stands for
// another actor, and a clock that is moved by hand.
//
//	g := zactortest.NewGroup(t, zactor.Config{})
//	probe := zactortest.NewProbe(t, g, "bank", zactortest.Expect[pb.Pay]())
//	shop, err := g.Spawn("shop", func() zactor.Actor { return newShop(probe.Ref()) })
//
// NewSteps makes a group whose actors do something only when the test says so, one message at a time, under a clock that the
// test moves: what happens is the same in each run, and nothing needs to be waited for.
//
//	g, s := zactortest.NewSteps(t, zactor.Config{})
//	door, err := g.Spawn("door", newDoor)
//	s.Send(door, &pb.Open{})
//	s.Run()                     // until nobody has anything to do
//	s.Advance(30 * time.Second) // it closes by itself
//
// Waiting is bounded by Bound and ends the test with what was missing; under testing/synctest it takes no time.
package zactortest
