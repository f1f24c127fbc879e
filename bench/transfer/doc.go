// Package transfer measures what becomes of requests while objects move from node to node, while a node drains and after one dies: three
// nodes of zgame in this process, over an embedded NATS (the bus, and JetStream KV as the store) and an embedded etcd, and, for the
// row of the crash, a fourth one in a process of its own, which is killed.
//
// Everything shares the machine: the callers, the nodes, and the servers.
package transfer
