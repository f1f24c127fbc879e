package znode

import (
	"fmt"

	"zgame/zconsole"
	"zgame/zdiscovery"
	"zgame/zgate"
)

// The web console, of nodes that have console.address set; see docs/console.md.

// consoleFaults says what is wrong with the settings of the console.
func (s *Settings) consoleFaults() (faults []error) {
	c := &s.Console
	if err := zconsole.CheckTokens(c.ReadToken, c.OperatorToken); err != nil {
		faults = append(faults, err)
	}
	if err := addressFault("console.address", c.Address, true); err != nil || c.Address == "" {
		return append(faults, err)
	}
	if c.ReadToken == "" && c.OperatorToken == "" {
		faults = append(faults, fmt.Errorf("console.address %q: %w", c.Address, zconsole.ErrNoToken))
	}
	if s.Admin.Address == "" {
		faults = append(faults, fmt.Errorf("console.address %q: expected admin.address too, by which the console asks the nodes", c.Address))
	}
	if !c.InsecurePlaintext && !zgate.LoopbackHost(c.Address) {
		faults = append(faults, fmt.Errorf("console.address %q is reached from other machines, and tokens would cross the network as plain text: expected an address of this machine such as "+
			"127.0.0.1:9190, or console.insecure_plaintext behind a proxy that ends TLS", c.Address))
	}
	return faults
}

// newConsole makes the console.
func (n *Node) newConsole() (*zconsole.Console, error) {
	s := &n.cfg.Settings.Console
	return zconsole.New(zconsole.Config{
		App: n.cfg.App.Name, ReadToken: s.ReadToken, OperatorToken: s.OperatorToken, Node: n.Self().ID, Messages: n.messages, Logger: n.log,
		Nodes: func() []zdiscovery.Node { return n.Nodes() },
	})
}

// ConsoleAddr returns host:port of the web console, "" where there is none.
func (n *Node) ConsoleAddr() string { return n.consoleServer.addr() }
