// Package chat is the chat example: rooms that people join from a browser, at any node, and whispers from one to another.
//
// A room is a stateful object (rooms.go): what happens in it is a list of lines with numbers, decided by pure functions (room.go). A line is pushed to the
// sessions that are bound to the room when it is saved, so nobody hears of one that a crash takes back; a client that sees a hole in
// the numbers asks for what is missing. Whispers go by the directory of users (whispers.go). Copy it, and begin with rooms.go.
package chat
