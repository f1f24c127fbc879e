// Package zactortest helps to test actors: a group that ends with the test, and a probe that stands for another actor.
//
//	g := zactortest.NewGroup(t, zactor.Config{})
//	probe := zactortest.NewProbe(t, g, "bank", zactortest.Expect[pb.Pay]())
//	shop, err := g.Spawn("shop", func() zactor.Actor { return newShop(probe.Ref()) })
//
// Waiting is bounded by Bound and ends the test with what was missing; under testing/synctest it takes no time.
package zactortest
