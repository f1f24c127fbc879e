// Package mongostore keeps records in MongoDB: the production store.
//
//	s, err := mongostore.New(mongostore.Config{URI: "mongodb://127.0.0.1:27017/?replicaSet=rs0"})
//
// # Document
//
//	{ _id: {t: type, z: zone, i: id},              // in this order: the server compares documents field by field
//	  own: {n: node | null, e: epoch, t: route version, p: pending 0 | 1},
//	  rev: revision, wid: <16 bytes>, sv: schema, st: <state>,
//	  dd: [{o: origin, s: seq, r: <reply>}], at: <attachment>, del: deleted, mt: <server's date of the last change, for people> }
//
// Numbers are 64 bits; those without a sign (epoch, revision, seq) use all of them, so that a high epoch shows as a
// negative number. at is there only behind a move that has one; st, sv and dd are not in a tombstone, mt is not before the first change. Fields that this
// version does not know stay: every write sets its own fields and no others.
//
// # Operations
//
//	Read    find by _id with read concern linearizable, from the primary
//	Create  insert; on a duplicate key, update where it is a tombstone of the revision that was read
//	Claim   findAndModify where _id, own.n, own.e, own.t, rev are as seen and del is false; returns the new document
//	Save, Move, Delete
//	        update with the same filter
//	Scan    find by own.n and own.e with read concern majority, from the primary; index own.n, own.e
//
// Writes have write concern majority with journal, and are retried by the driver where the server can tell a
// repetition (replica sets), within the call's time: most step-downs pass unnoticed. No upserts, no transactions, no change streams. Nothing depends on a clock; tombstones end
// by a TTL index on mt, partial on del: true.
//
// # Server
//
// A replica set or a sharded cluster (shard by hashed _id). A single server without replication refuses linearizable
// reads; make it a replica set of one (`mongod --replSet rs0`, then rs.initiate()). The suite runs against FerretDB and
// against TEST_MONGO_URI in module zgame/test; what FerretDB ignores or lacks is said there.
//
// # Limits
//
// MaxState is 15 MB of MongoDB's 16 MB for a document.
//
// # Goroutines
//
// Those of the MongoDB client; Close ends them.
//
// # Failure
//
// No server found within Config.Timeout or the context, or no free connection: ErrUnavailable. Network error, time-out,
// step-down during a write, or no majority's acknowledgement: ErrUnknown. An update that matched nothing is looked up:
// it is ErrConflict, or the write had landed before; if that cannot be read, ErrUnknown.
package mongostore
