package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/internal/conformance"
)

var errNotConformant = errors.New("the program does not keep to the protocol")

func (a *app) conformance() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use: "conformance COMMAND...", Short: "Judge a publisher in any language",
		Long: "It starts a redis-server and the command, gives that its orders on standard input, one JSON object a line, disturbs it, " +
			"and looks into Redis at what is stored. docs/use/languages.md says how a program gets its orders, and what it answers. " +
			"With --redis, it uses that server, under a prefix of its own, and leaves out what would disturb others; REDIS_URL is not used. " +
			"It exits with 1 if a case fails.",
		Args: arguments, DisableFlagsInUseLine: true,
		Example: "redisdelay conformance -- python3 publisher.py protocol.json\nredisdelay conformance --case 'lost reply' -- ./my-publisher",
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().SetInterspersed(false) // what follows the command is its own
	cmd.Flags().Var(&several{to: &only, name: "CASE", of: conformance.Names()}, "case", "run only this one; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("case", cobra.FixedCompletions(conformance.Names(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options := conformance.Options{Command: args, Redis: a.target.URL, Cases: only, Errors: a.err}
		failed := false
		err := conformance.Run(cmd.Context(), options, func(r conformance.Result) {
			failed = failed || r.Outcome == conformance.Failed
			_ = a.judged(r)
		})
		switch {
		case err != nil:
			return err
		case failed:
			return errNotConformant
		}
		return nil
	}
	return cmd
}

// judged prints how a case ended.
func (a *app) judged(r conformance.Result) error {
	if a.json() {
		return a.object(r)
	}
	style := map[conformance.Outcome]styled{
		conformance.Passed: paint(goodStyle, "passed"), conformance.Failed: paint(badStyle, "FAILED"), conformance.Skipped: paint(warnStyle, "skipped"),
	}
	if err := a.printf("%s  %s: %s\n", style[r.Outcome], r.Case, r.About); err != nil {
		return err
	}
	for _, problem := range r.Problems {
		if err := a.printf("        %s\n", fmt.Sprint(problem)); err != nil {
			return err
		}
	}
	return nil
}
