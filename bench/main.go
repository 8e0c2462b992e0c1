// Command bench measures redisdelay on a separate Redis, compares it with its peers and with floors
// that no library can beat, and reports whether it meets the project's goals.
//
//	go run . [-only regexp] [-rounds N] [-scale F] [-out dir] [-profile dir]
//	go run . [flags] million10
//
// The second form measures a server with ten million messages, which takes longer and needs 10 GB of memory.
//
// Contestants of an experiment take turns, so that a machine that slows down affects all of them.
// Each starts on an empty Redis. A run fails if a message is lost.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
)

// documentation is the directory for the results of a complete run.
const documentation = "../docs/benchmarks"

type options struct {
	chosen  []experiment
	rounds  int
	scale   float64
	out     string // "" for none
	profile string // "" for none
	command string // the command to name in the report
}

func main() {
	err := run
	if len(os.Args) == 4 && os.Args[1] == holdBack {
		err = func() error { return runProxy(os.Args[2], os.Args[3]) }
	}
	if err := err(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	opts, err := parse()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	lab, err := openLab(opts.scale, opts.profile)
	if err != nil {
		return err
	}
	defer lab.close()

	var outcomes []outcome
	for _, e := range opts.chosen {
		o, err := e.run(ctx, lab, opts.rounds)
		if err != nil {
			return err
		}
		outcomes = append(outcomes, o)
		fmt.Print(o.section(nil))
	}
	fmt.Print(barTable(outcomes))
	if opts.out == "" {
		return nil
	}
	return write(ctx, opts.out, opts.command, lab, outcomes)
}

// parse reads the flags. Only a complete run replaces the documentation, unless
// -out says otherwise.
func parse() (options, error) {
	only := flag.String("only", "", "run the experiments whose name matches this regular expression")
	rounds := flag.Int("rounds", 5, "rounds of each experiment; long experiments have fewer")
	scale := flag.Float64("scale", 1, "multiplies the numbers of messages and the times")
	out := flag.String("out", "", "directory for README.md (default "+documentation+" for a complete run)")
	profile := flag.String("profile", "", "directory for CPU profiles of redisdelay")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return options{}, err
	}
	chosen, pages, command := experiments(), documentation, "make bench"
	if flag.Arg(0) == million10 {
		chosen, pages, command = []experiment{tenMillion()}, documentation+"/"+million10, "make "+million10
	}
	if *rounds < 1 || *scale <= 0 || flag.NArg() > 1 || flag.NArg() == 1 && flag.Arg(0) != million10 {
		return options{}, fmt.Errorf("usage: go run . [-only regexp] [-rounds N] [-scale F] [-out dir] [-profile dir] [%s]", million10)
	}
	chosen = slices.DeleteFunc(chosen, func(e experiment) bool { return !pattern.MatchString(e.name) })
	if *out == "" && *only == "" && *scale == 1 {
		*out = pages
	} else {
		command = "go run . " + strings.Join(os.Args[1:], " ")
	}
	return options{chosen, *rounds, *scale, *out, *profile, command}, nil
}

// experiments returns all experiments but million10, in the order of the report.
func experiments() []experiment {
	return slices.Concat(
		[]experiment{drainOne(), drainTen(), router(), relays(), publishOne(), publishAsync(200_000, 20_000)}, publishSome(), farExperiments(),
		[]experiment{publishBatches(), lateness(), drainOrdered(), drainOneKey(), idleOne(), idleTopics(), memory(), manyGroups()},
	)
}
