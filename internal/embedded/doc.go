// Package embedded runs real servers inside this process: NATS (with JetStream) and etcd. `gameserver dev`, tests and
// benchmarks speak to them through the production clients, over loopback, so nothing is a stand-in.
//
//	n, err := embedded.StartNATS(dir, 0) // port 0: a free one
//	...
//	defer n.Stop()
//	bus, err := natsbus.New(natsbus.Config{URL: n.URL()})
//
// Start returns when the server answers, Stop when it is gone. Both servers listen on loopback only, keep their data
// under the given directory and can be started again over it. They are tuned for one process on one machine, not for
// safety on power loss: etcd does not sync to disk, NATS syncs every two minutes.
//
// # Goroutines
//
// Each server runs goroutines of its own. All of them end with Stop: goleak needs no exception for either library.
//
// # Failure
//
// A server that does not answer in time, or whose port or directory is taken, is an error of Start, which has stopped
// it then. One that breaks later is noticed by its clients, as it would be from outside.
//
// # Package state of others
//
// etcd keeps the size of its WAL segments in a package variable; the first StartEtcd sets it to 1 MiB for the whole
// process (64 MB preallocated for each server otherwise).
//
// Only zcli, ztest, programs and tests import this package: it links the servers in.
package embedded
