package kvstore

import "zgame/zmsg"

// Subject is where the document of k is.
func Subject(bucket string, k zmsg.Key) string { return subject("$KV."+bucket+".", k) }
