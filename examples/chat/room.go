package chat

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
)

// What a room is: pure functions on its state.

const (
	newestLines = 50       // that a join answers with
	someLines   = 100      // that one answer to History has
	keptLines   = 200      // that a room remembers,
	keptBytes   = 64 << 10 // in so many bytes
	maxText     = 500      // letters
	maxOnce     = 64       // bytes
)

var (
	roomName     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
	errBadRoom   = zmsg.Errorf(zmsg.Code(chatpb.Code_CODE_BAD_ROOM), "a room is named by 1 to 32 letters, digits, '-' or '_'")
	errBadText   = zmsg.Errorf(zmsg.Code(chatpb.Code_CODE_BAD_TEXT), "a line has 1 to %d letters", maxText)
	errBadOnce   = zmsg.Errorf(zmsg.CodeBadRequest, "once is longer than %d bytes", maxOnce)
	errNotMember = zmsg.Errorf(zmsg.Code(chatpb.Code_CODE_NOT_MEMBER), "join the room first")
	errFull      = zmsg.Errorf(zmsg.Code(chatpb.Code_CODE_FULL), "the room has as many people as it may")
	errTooFast   = zmsg.Errorf(zmsg.CodeRateLimited, "too much at once: wait a moment")
)

// enter makes the session a member, and notes that its user has come where he was not here. It reports whether anything has changed.
func enter(s *chatpb.RoomState, room, user string, session zmsg.SessionRef, most int, nowMs int64) (changed bool, err error) {
	if find(s, session) >= 0 {
		return false, nil
	}
	here := names(s)
	if !slices.Contains(here, user) {
		if len(here) >= most {
			return false, errFull
		}
		add(s, &chatpb.Line{Room: room, Kind: chatpb.LineKind_LINE_KIND_CAME, From: user, AtMs: nowMs})
	}
	s.Members = append(s.Members, memberOf(user, session))
	return true, nil
}

// exit removes the session, and notes that its user has left where it was his last. It reports whether anything has changed.
func exit(s *chatpb.RoomState, room string, session zmsg.SessionRef, nowMs int64) (changed bool) {
	i := find(s, session)
	if i < 0 {
		return false
	}
	user := s.GetMembers()[i].GetUser()
	s.Members = slices.Delete(s.Members, i, i+1)
	if !slices.Contains(names(s), user) {
		add(s, &chatpb.Line{Room: room, Kind: chatpb.LineKind_LINE_KIND_LEFT, From: user, AtMs: nowMs})
	}
	return true
}

// rename notes that the session of a member goes on at another gate. It reports whether anything has changed.
func rename(s *chatpb.RoomState, from, to zmsg.SessionRef) (changed bool) {
	i := find(s, from)
	if i < 0 {
		return false
	}
	s.Members[i] = memberOf(s.GetMembers()[i].GetUser(), to)
	return true
}

// speak adds a line of a member, and returns its seq. One that has been said already, by its name, is not said again.
func speak(s *chatpb.RoomState, session zmsg.SessionRef, line *chatpb.Line, p pace) (seq uint64, err error) {
	if find(s, session) < 0 {
		return 0, errNotMember
	}
	if line.GetOnce() != "" {
		for _, l := range slices.Backward(s.GetLines()) {
			if l.GetOnce() == line.GetOnce() && l.GetFrom() == line.GetFrom() {
				return l.GetSeq(), nil
			}
		}
	}
	if s.Paces == nil {
		s.Paces = make(map[string]*chatpb.Pace)
	}
	if !p.take(s.Paces, line.GetFrom(), line.GetAtMs()) {
		return 0, errTooFast
	}
	add(s, line)
	return line.GetSeq(), nil
}

// add gives the line its number, and forgets the oldest ones.
func add(s *chatpb.RoomState, line *chatpb.Line) {
	s.Last++
	line.Seq = s.GetLast()
	s.Lines = append(s.Lines, line)
	s.Size += uint32(proto.Size(line))
	for len(s.GetLines()) > keptLines || s.GetSize() > keptBytes {
		s.Size -= uint32(proto.Size(s.GetLines()[0]))
		s.Lines = slices.Delete(s.Lines, 0, 1)
	}
}

// between returns the newest lines above after and below before (0: no bound), at most so many. Lines do not change, the list does.
func between(s *chatpb.RoomState, after, before uint64, most int) []*chatpb.Line {
	var out []*chatpb.Line
	for _, l := range s.GetLines() {
		if l.GetSeq() > after && (before == 0 || l.GetSeq() < before) {
			out = append(out, l)
		}
	}
	return out[max(0, len(out)-most):]
}

func checkText(text, once string) error {
	switch {
	case strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > maxText:
		return errBadText
	case len(once) > maxOnce:
		return errBadOnce
	}
	return nil
}

func memberOf(user string, s zmsg.SessionRef) *chatpb.Member {
	return &chatpb.Member{User: user, Session: s.ID, Generation: s.Gen, Gate: s.Gate.ID, GateEpoch: s.Gate.Epoch}
}

func sessionOf(m *chatpb.Member) zmsg.SessionRef {
	return zmsg.SessionRef{Gate: zmsg.NodeRef{ID: m.GetGate(), Epoch: m.GetGateEpoch()}, ID: m.GetSession(), Gen: m.GetGeneration()}
}

func find(s *chatpb.RoomState, session zmsg.SessionRef) int {
	return slices.IndexFunc(s.GetMembers(), func(m *chatpb.Member) bool { return sessionOf(m) == session })
}

// names lists who is here, sorted, without doubles.
func names(s *chatpb.RoomState) []string {
	list := make([]string, 0, len(s.GetMembers()))
	for _, m := range s.GetMembers() {
		list = append(list, m.GetUser())
	}
	slices.Sort(list)
	return slices.Compact(list)
}
