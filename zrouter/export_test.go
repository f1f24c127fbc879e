package zrouter

// RaceEnabled says that the race detector is on.
const RaceEnabled = raceEnabled

// Waiting is how many requests wait for objects of the set.
func Waiting(s *ManagerSet) int { return int(s.kept.Load()) }
