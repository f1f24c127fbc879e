package zmsg

import "time"

// Login is a session that a directory of users is told of.
type Login struct {
	User    string
	Session SessionRef
	// Number is that of the login among the user's, which rises: what the directory gave it; 0: it is a new one. By it a directory that has lost
	// what it knew learns which of several sessions is the newest.
	Number uint64
	// Most is how many sessions the user may have at once; 0: any number.
	Most int
	// Refuse says what becomes of one more than Most: it is refused; else the oldest is closed for it.
	Refuse bool

	// Window is for how long the session may be gone on with at another gate where its own is gone; 0: not at all.
	Window time.Duration
	// Proof is a hash of the key that all resume tokens of the session hold. It stays the same, wherever the session goes.
	Proof []byte
	// Resumes is the session of another gate that this one goes on with, and Claim the Proof that its client's token has. Zero: of none.
	Resumes SessionRef
	Claim   []byte
	// Handed says that the gate of Resumes has handed its session over: there is nothing to be proved, and nothing to be closed.
	Handed bool
}

// ElsewhereError says that the session which a Login was to go on with goes on at another gate: the client is to be asked for there.
type ElsewhereError struct{ Session SessionRef }

// Error says where.
func (e *ElsewhereError) Error() string {
	return "zmsg: the session is at the gate of " + e.Session.Gate.String() + " by now"
}

// Admission is what a directory of users says of a login.
type Admission uint8

// The admissions.
const (
	Admitted Admission = iota // the session is one of the user's
	Replaced                  // it is none any more: the user has newer ones, and may have no more
	Refused                   // it is none: the user has as many as he may
	Lapsed                    // it is none: the directory does not know the session that it was to go on with, or the claim is false
)

var admissionNames = [...]string{"admitted", "replaced", "refused", "lapsed"}

// String returns admitted, replaced, refused or lapsed.
func (a Admission) String() string { return admissionNames[a] }
