// Package zmsg holds the words that all of zgame shares: the Message that waits in mailboxes, the Frame that client
// and gate exchange, the Envelope that nodes exchange, result codes, identities, and the registry of message types.
//
// It imports nothing else of zgame, so that every package can speak of the same things.
//
// # The codec
//
// AppendFrame, Frame.Decode and their like for packets, envelopes and batches are written by hand on protowire. They
// give the bytes of deterministic proto.Marshal, accept what the generated code accepts (the few exceptions stand at
// the functions), never panic, and do not allocate: decoded strings and bytes alias the input. Fuzz tests hold both
// equal, testdata/golden holds the clients of all languages equal.
//
// # Goroutines
//
// None. A Message has one owner at a time; a Registry and what is made of it never change and may be read from anywhere.
//
// # Failure
//
// Decoding answers ErrMalformed or, for what is not of this wire, ErrForeign. An Error is what ends a request: a code
// with "may the client try again", an outcome (did it run), a text. CodeOf and OutcomeOf read them from any error.
package zmsg
