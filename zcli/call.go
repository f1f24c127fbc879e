package zcli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"zgame/internal/adminport"
)

// maxAnswer is how much of an answer is printed, in bytes.
const maxAnswer = 16 << 20

// callCommand is `call`: it sends a message to whoever handles it, and prints the answer.
func callCommand() Command {
	return Command{
		Name: "call",
		Help: "send a message, made of JSON, to whoever handles it, and print the answer",
		Run: func(ctx context.Context, env Env, args []string) error {
			flags, at, timeout := operation(env, "call", "call MESSAGE [JSON] [--object KEY] [--user USER]",
				"MESSAGE is the full name of a message type with an id, JSON its fields (- reads them from standard input): call chat.Who '{\"room\":\"go\"}'. It goes where an actor's\n"+
					"message would, also to handlers that clients may not call. Nodes must have admin.call set.\n"+keyText)
			object := flags.String("object", "", "KEY of the object that it is for, where the message does not say")
			user := flags.String("user", "", "on behalf of whom; handlers believe it")
			words, err := ParseWords(flags, env, args, "MESSAGE, and maybe its fields in JSON", 1, 2)
			if err != nil {
				return err
			}
			var body io.Reader = http.NoBody
			switch {
			case len(words) == 2 && words[1] == "-":
				body = os.Stdin
			case len(words) == 2:
				body = strings.NewReader(words[1])
			}
			return at.operate(ctx, env, *timeout, func(ctx context.Context, o *operator) error {
				query := url.Values{}
				if *object != "" {
					k, err := o.key(ctx, *object)
					if err != nil {
						return err
					}
					query = adminport.ObjectQuery(k)
				}
				if *user != "" {
					query.Set("user", *user)
				}
				return o.call(ctx, words[0], query, body)
			})
		},
	}
}

func (o *operator) call(ctx context.Context, message string, query url.Values, body io.Reader) error {
	address, err := o.Any(ctx)
	if err != nil {
		return err
	}
	res, err := adminport.Ask(ctx, address, http.MethodPost, "/call/"+adminport.Segment(message)+"?"+query.Encode(), body)
	if err != nil {
		if s, ok := errors.AsType[*adminport.StatusError](err); ok {
			return errors.New(s.Text)
		}
		return err
	}
	defer res.Body.Close()
	if name := res.Header.Get("Zgame-Message"); name != "" {
		fmt.Fprintln(o.env.Stderr, name)
	}
	_, err = io.Copy(o.env.Stdout, io.LimitReader(res.Body, maxAnswer))
	return err
}
