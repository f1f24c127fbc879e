// Package chat is the chat example: rooms that people join from a browser, at any node.
//
// The rooms of a cluster are spread over its nodes by rendezvous on the room's name: one service actor for each node
// (rooms.go). What a room knows is one record in the store, written by compare-and-set before anybody hears of it
// (record.go), so that the shard that takes a room over goes on where the other stopped.
package chat
