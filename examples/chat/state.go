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
	historyLines = 50
	maxText      = 500 // letters
)

var (
	roomName     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
	errBadRoom   = zmsg.Errorf(zmsg.Code(chatpb.Code_CODE_BAD_ROOM), "a room is named by 1 to 32 letters, digits, '-' or '_'")
	errBadText   = zmsg.Errorf(zmsg.Code(chatpb.Code_CODE_BAD_TEXT), "a line has 1 to %d letters", maxText)
	errNotMember = zmsg.Errorf(zmsg.Code(chatpb.Code_CODE_NOT_MEMBER), "join the room first")
)

func checkRoom(name string) error {
	if !roomName.MatchString(name) {
		return errBadRoom
	}
	return nil
}

func checkText(text string) error {
	if strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > maxText {
		return errBadText
	}
	return nil
}

// group is the gates' group of a room's members.
func group(room string) string { return "room/" + room }

func memberOf(user string, s zmsg.SessionRef) *chatpb.Member {
	return &chatpb.Member{User: user, Session: s.ID, Generation: s.Gen, Gate: s.Gate.ID, GateEpoch: s.Gate.Epoch}
}

func sessionOf(m *chatpb.Member) zmsg.SessionRef {
	return zmsg.SessionRef{Gate: zmsg.NodeRef{ID: m.GetGate(), Epoch: m.GetGateEpoch()}, ID: m.GetSession(), Gen: m.GetGeneration()}
}

// enter makes the session a member and reports whether its user was not here before.
func enter(s *chatpb.RoomState, user string, session zmsg.SessionRef) (came bool) {
	if find(s, session) >= 0 {
		return false
	}
	came = !isHere(s, user)
	s.Members = append(s.Members, memberOf(user, session))
	return came
}

// exit removes the session and reports whether it was its user's last.
func exit(s *chatpb.RoomState, session zmsg.SessionRef) (user string, left bool) {
	i := find(s, session)
	if i < 0 {
		return "", false
	}
	user = s.GetMembers()[i].GetUser()
	s.Members = slices.Delete(s.Members, i, i+1)
	return user, !isHere(s, user)
}

// say appends the line, which gets its seq. A line that is there already, from an earlier try, stays as it is.
func say(s *chatpb.RoomState, session zmsg.SessionRef, line *chatpb.Line) error {
	if find(s, session) < 0 {
		return errNotMember
	}
	if err := checkText(line.GetText()); err != nil {
		return err
	}
	if slices.ContainsFunc(s.GetLines(), func(l *chatpb.Line) bool { return proto.Equal(l, line) }) {
		return nil
	}
	s.Last++
	line.Seq = s.GetLast()
	s.Lines = append(s.Lines, line)
	if extra := len(s.GetLines()) - historyLines; extra > 0 {
		s.Lines = slices.Delete(s.Lines, 0, extra)
	}
	return nil
}

// history returns the lines; those that are said afterwards, in the same write too, do not change it.
func history(s *chatpb.RoomState) []*chatpb.Line { return slices.Clone(s.GetLines()) }

func find(s *chatpb.RoomState, session zmsg.SessionRef) int {
	return slices.IndexFunc(s.GetMembers(), func(m *chatpb.Member) bool { return sessionOf(m) == session })
}

func isHere(s *chatpb.RoomState, user string) bool {
	return slices.ContainsFunc(s.GetMembers(), func(m *chatpb.Member) bool { return m.GetUser() == user })
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
