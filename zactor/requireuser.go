package zactor

import "zgame/zmsg"

var errNoUser = NotRun(&zmsg.Error{Code: zmsg.CodeUnauthorized, Outcome: zmsg.NotExecuted, Text: "log in first"})

// RequireUser is Middleware that turns down a client's message whose session has no user: CodeUnauthorized, not
// executed. Messages of actors pass.
func RequireUser() Middleware {
	return func(h HandlerInfo, next Func) Func {
		if !h.Client {
			return next
		}
		return func(c *Context) error {
			if c.FromClient() && c.User() == "" {
				return errNoUser
			}
			return next(c)
		}
	}
}
