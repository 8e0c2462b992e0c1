// Command bench measures redisdelay on a separate Redis, against its peers and against
// floors that no library can beat, and says whether it meets the bars that the project has
// set.
//
//	go run . [-only regexp] [-rounds N] [-scale F] [-out dir] [-profile dir]
//
// Contestants of an experiment take turns, so that a machine that slows down affects all of
// them, and each starts on an empty Redis. A run fails if a message is lost.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
)

// documentation is where the results of a complete run go.
const documentation = "../docs/benchmarks"

type options struct {
	only    *regexp.Regexp
	rounds  int
	scale   float64
	out     string // "" for none
	profile string // "" for none
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
	for _, e := range experiments() {
		if !opts.only.MatchString(e.name) {
			continue
		}
		o, err := e.run(ctx, lab, opts.rounds)
		if err != nil {
			return err
		}
		outcomes = append(outcomes, o)
		fmt.Print(o.section())
	}
	fmt.Printf("\n%s", barTable(outcomes))
	if opts.out == "" {
		return nil
	}
	return write(ctx, opts.out, lab, outcomes)
}

// parse reads the flags. Only a complete run replaces the documentation, unless
// -out says otherwise.
func parse() (options, error) {
	only := flag.String("only", "", "run the experiments whose name matches this regular expression")
	rounds := flag.Int("rounds", 5, "rounds of each experiment; long experiments have fewer")
	scale := flag.Float64("scale", 1, "multiplies the numbers of messages and the times")
	out := flag.String("out", "", "directory for README.md and plots (default "+documentation+" for a complete run)")
	profile := flag.String("profile", "", "directory for CPU profiles of redisdelay")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return options{}, err
	}
	if *rounds < 1 || *scale <= 0 || flag.NArg() > 0 {
		return options{}, fmt.Errorf("usage: go run . [-only regexp] [-rounds N] [-scale F] [-out dir] [-profile dir]")
	}
	if *out == "" && *only == "" && *scale == 1 {
		*out = documentation
	}
	return options{pattern, *rounds, *scale, *out, *profile}, nil
}

// experiments returns all experiments, in the order of the report.
func experiments() []experiment {
	publishing := append([]experiment{publishOne()}, publishSome()...)
	return slices.Concat([]experiment{drainOne(), drainTen(), router(), relays()}, publishing, farExperiments(), []experiment{
		publishBatches(), publishAndConsume(),
		lateness(), drainOrdered(), drainOneKey(), coldKeys(), staleBacklog(), idleOne(), idleMany(), idleCrowd(), idleTopics(), periodicMany(), periodicLate(), inboxDrain(),
		million(), operate(), watch(), watchPublish(), scraping(), memory(), poison(), slow(), pausing(), groups(),
		manyGroups(50, usualPoll, 1), manyGroups(200, usualPoll, 2), manyGroups(1000, usualPoll, 5),
		manyGroups(1000, 4*usualPoll, 1), churn(), churnFar(),
	})
}
