package doctor

// Limits are what the machine, or the container, gives a process. 0: the system does not tell.
type Limits struct {
	OpenFiles uint64 // that the process may have, sockets among them
	Memory    uint64 // bytes: of the container where there is one, else of the machine
}
