// Package zmetrics is the catalogue of every metric of zgame: one typed set for each package (Actor, Gate, Bus, ...),
// made of the small Counter, Gauge and Histogram types here, on prometheus/client_golang, which besides only znode
// imports, for the registry behind /metrics.
//
// A set made with a nil Registerer counts into the void, so that code never asks whether metrics are on.
// Labels hold reasons, results and kinds of a fixed list, never user ids, session ids, addresses or texts of messages.
//
// # Goroutines
//
// None. Every method may be called from any goroutine.
//
// # Failure
//
// Registering a set twice with one Registerer panics: a node makes each set once.
package zmetrics
