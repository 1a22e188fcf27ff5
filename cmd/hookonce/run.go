package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1
	exitMisuse = 2
)

// misuse is an error of whoever called: wrong arguments or configuration.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// program is what every command gets from outside.
type program struct {
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// run is the whole program: arguments, environment and streams in, exit code
// out.
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{environ: environ, stdin: stdin, stdout: stdout, stderr: stderr}
	root := &cobra.Command{
		Use:   "hookonce",
		Short: "Makes each webhook event run once, in front of an unmodified application",
		Long: "hookonce is a reverse-proxy sidecar. It verifies a webhook's signature, claims the event's key,\n" +
			"forwards only new events, answers repeats itself, and gives the key back when the application fails.\n\n" +
			"Without a command it serves. It is configured by environment variables; see the README.",
		Args:              noArguments,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE:              p.serve,
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return misuse{fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
	})
	root.AddCommand(
		&cobra.Command{Use: "serve", Short: "Serve (the default)", Args: noArguments, RunE: p.serve},
		p.migrateCommand(), p.keyCommand(), p.verifyCommand(), p.sendCommand(),
		p.eventsCommand(), p.cleanupCommand(), p.versionCommand(),
	)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errSaid) {
		fmt.Fprintln(stderr, "hookonce: "+err.Error())
	}
	var m misuse
	if errors.As(err, &m) {
		return exitMisuse
	}
	return exitFailed
}

// errSaid fails a command that has said why already.
var errSaid = errors.New("failed")

func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return misuse{fmt.Errorf("unknown command or argument %q; see %s --help", args[0], c.CommandPath())}
}

func oneKey(c *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return misuse{fmt.Errorf("%s takes one KEY, as `hookonce events list` prints it", c.CommandPath())}
}

// output is the --output flag: text or json.
type output struct{ format string }

func (o *output) register(c *cobra.Command) {
	c.Flags().StringVar(&o.format, "output", "text", "text or json")
}

func (o *output) check() error {
	if o.format != "text" && o.format != "json" {
		return misuse{fmt.Errorf("--output is %q; it is text or json", o.format)}
	}
	return nil
}

// print writes v as JSON, or its text.
func (o *output) print(w io.Writer, v any, text string) error {
	if o.format == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(v)
	}
	_, err := io.WriteString(w, strings.TrimRight(text, "\n")+"\n")
	return err
}
