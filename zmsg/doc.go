// Package zmsg holds the words that all of zgame shares: the Message that waits in mailboxes, the Frame that client
// and gate exchange, the Envelope that nodes exchange, result codes, identities, and the registry of message types.
//
// It imports nothing else of zgame, so that every package can speak of the same things.
package zmsg
