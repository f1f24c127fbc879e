// Package kvstore keeps records in NATS JetStream, in the layout of a key-value bucket: the embedded default, and an
// honest choice for small clusters.
//
//	s, err := kvstore.New(kvstore.Config{URL: "nats://127.0.0.1:4222"})
//
// # Layout
//
// The bucket zgame is the stream KV_zgame with one message for each key:
//
//	subject  $KV.zgame.<type>.<zone>.<id in base64url without padding>
//	data     zgame.store.v1.Record (proto/zgame/store/v1/record.proto); fields of newer versions are kept
//	headers  Zgame-Own: <node in base64url> <epoch> <version> <0|1 pending>, where somebody owns the record
//	         Nats-TTL: on tombstones
//
// `nats kv get` reads it. The driver makes the stream itself, because the clients' KV turns direct gets on, which any
// replica answers, with old news; here every read goes through the stream's leader. The document's rev is the record's
// revision. The stream's sequence is the compare-and-set token and nothing else.
//
// # Promises
//
// Those of zstore. A write is one message with "expected last sequence of this subject": the server takes one of many.
// It is as durable as the stream: with one replica, set sync_interval: always in the server's configuration if a power
// cut must not lose the last two minutes; with three replicas a majority has it. A leader that has just lost its
// majority may answer a read with old news for some seconds; writes are safe always, so a Claim or Save on top of
// such news is refused.
//
// A write costs one round trip where the driver remembers the record's token (Config.Remember), else two. Remembered
// tokens are never trusted for an answer, only for a try: a token names one exact document. Scan reads the headers of
// all records, not their states: 110,000 records a second on two busy cores (BenchmarkScan).
//
// # Limits
//
// MaxState is what the server's max_payload leaves (DefaultOverhead less). nats-server's own default of max_payload is
// 1 MiB; the embedded server has 16 MiB. Needs nats-server 2.11 (message TTL).
//
// # Goroutines
//
// One, which watches the connection, so that calls end at once with ErrUnknown or ErrUnavailable when it is lost; Close
// ends it. The NATS client has its own, which Close ends unless Config.Conn was given.
//
// # Failure
//
// Not connected: ErrUnavailable at once; the client reconnects for ever. Lost during a write, no answer in time, or an
// answer that the server failed to store: ErrUnknown.
package kvstore
