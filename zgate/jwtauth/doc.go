// Package jwtauth is a zgate.Authenticator for signed tokens (JWT): the login service of a game signs who the player is, and
// the gate believes what one of its keys has signed.
//
//	auth, err := jwtauth.New(ctx, jwtauth.Config{
//		Algorithms: []string{"EdDSA"}, JWKSURL: "https://login.example/jwks.json", Audience: "mygame", Issuer: "https://login.example",
//	})
//	g, err := zgate.New(zgate.Config{Auth: auth, ...})
//	...
//	auth.Close()
//
// # Promises
//
//   - The algorithm is the verifier's choice, never the token's: only those of Config.Algorithms are looked at, and each key
//     is good for the one algorithm of its type. "none" is none of them.
//   - A token without an expiry, of another audience or issuer, before its time or past it (give or take Config.Skew), with
//     a critical extension, or without a subject is refused. The subject is the id of the user.
//   - The client is told one of a few fixed texts, by which it can tell that its token has expired ("token has expired").
//     Tokens, and what is in them, are never logged.
//   - Keys are loaded anew every Config.Refresh, and at once when a token names a key that is not there (no more often than
//     Config.MinRefresh, whatever clients send): a key that is added works from its first token on, one that is taken away
//     for Config.Refresh at most. While the source does not answer, the keys of its last answer hold.
//
// # Goroutines
//
// Authenticate may be called from any goroutine. One goroutine at a time loads keys, for LoadTimeout at most; Close ends it.
package jwtauth
