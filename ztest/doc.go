// Package ztest runs many nodes in one test, with clients that talk to them.
//
//	func TestChat(t *testing.T) {
//		c := ztest.Cluster(t, 2, chat.App())
//		ann, bob := c.Client("ann", 0), c.Client("bob", 1)
//		…
//	}
//
// Nodes are the real ones (znode) with real websockets on loopback. Bus, discovery and store are the drivers in memory, or,
// with RealServers, the production drivers on NATS and etcd inside the process; with Faulty, each node has a proxy before
// them that breaks its connections on demand. Everything stops with the test.
//
// # Goroutines
//
// Those of the nodes, servers and clients. All have ended when the test has, so goleak in TestMain needs no exception.
//
// # Failure
//
// What cannot start, and a wait that takes longer than 30 s, ends the test with what was missing.
package ztest
