// Package chaos runs clusters of real processes, each node in a network namespace of its own, has clients use them, and does to
// them what machines and networks do: kill -9, processes that stop and go on, partitions, servers that are away. Oracles
// (package oracle) then say from outside whether what was promised was held.
//
// One file each: the namespaces (netns_test.go), processes (process_test.go), a cluster (world_test.go), the clients (load_test.go),
// the store's writes (journal_test.go), the verdict (verdict_test.go); the others are faults.
//
// The tests run in namespaces of the kernel that end with them: whatever ends a test, no process, network or rule stays behind.
// That needs Linux, and root, or a system where users may make namespaces; and the programs ip (iproute2) and iptables.
//
// What is drawn is drawn from a seed, which a failing test prints; -chaos.seed takes it back. -chaos.rounds says how often each
// fault is done; `make chaos` is the long form.
package chaos
