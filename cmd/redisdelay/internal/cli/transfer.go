package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

func (a *app) export() *cobra.Command {
	var f *filter
	file := ""
	var cmd *cobra.Command
	cmd = a.command("export TOPIC", "Write messages with their due times as JSON lines; change nothing",
		func(cmd *cobra.Command, _ []string) error {
			if _, err := os.Lstat(file); file != "" && err == nil {
				return usagef("--file %s exists, want a new file", file)
			}
			return f.check(cmd)
		},
		func(ctx context.Context, args []string) error {
			goOn := func(cursor string) styled { return resumeLine(cmd, args, cursor, "file") }
			return a.exportTo(ctx, args[0], f.query(), file, goOn)
		})
	f = a.newFilter(cmd, admin.Scheduled, admin.Waiting, admin.InDelivery, admin.Dead)
	cmd.Flags().Var(text(&file, "FILE"), "file", "write to a new file in place of standard output")
	cmd.Example = "redisdelay export orders --file orders.jsonl\n" +
		"redisdelay export orders | redisdelay import orders --redis redis://other:6379"
	return cmd
}

// exportTo exports to a file, or to standard output. goOn returns the command line that continues from a cursor.
func (a *app) exportTo(ctx context.Context, topic string, q admin.Query, file string, goOn func(cursor string) styled) error {
	total, err := a.admin.Count(ctx, topic, q)
	if err != nil {
		return err
	}
	out, finish, err := a.exportFile(file)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(out, 1<<20)
	bar := a.newBar("exported", total)
	var lines io.Writer = buffered
	if file == "" {
		lines = escaping{buffered}
	}
	progress, err := a.admin.Export(ctx, topic, q, lines, bar.update)
	bar.clear()
	if failed := errors.Join(buffered.Flush(), finish()); failed != nil {
		err, progress.Cursor = errors.Join(err, failed), "" // it is unknown which lines were written
	}
	err = errors.Join(err, a.exported(topic, file, total, progress, err))
	if progress.Cursor != "" {
		a.say("go on, in another file, with: %s\n", goOn(progress.Cursor))
	}
	return outcome(ctx, err, progress, false)
}

// exported reports the result of an export.
func (a *app) exported(topic, file string, total int, p admin.Progress, failed error) error {
	messages := humanize.Count(p.Done, "message", "messages")
	if file == "" { // standard output contains the messages
		a.say("exported %s\n", messages)
		return nil
	}
	result := operationJSON{Topic: topic, Operation: "export", To: file, Matching: &total, Cursor: p.Cursor}
	result.set(p, failed)
	return a.reply(result, "exported %s to %s", messages, file)
}

// exportFile creates the file, which must not exist.
func (a *app) exportFile(file string) (io.Writer, func() error, error) {
	if file == "" {
		return a.data, func() error { return nil }, nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // messages may be private
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}

func (a *app) imports() *cobra.Command {
	set := &setImport{app: a, metadata: pairs{}}
	cmd := a.command("import TOPIC [FILE]", "Publish the lines of an export, or the members of a sorted set, each once",
		func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && a.terminal.in && !set.asked() {
				return usagef("FILE is missing: want the file to import, a pipe into standard input, or --zset KEY")
			}
			return set.check(cmd, args)
		},
		func(ctx context.Context, args []string) error {
			if set.asked() {
				return set.run(ctx, args)
			}
			return a.importFrom(ctx, args)
		})
	cmd.Long = aboutImport
	set.flags(cmd)
	cmd.Example = "redisdelay import orders orders.jsonl\n" +
		"redisdelay import orders --zset jobs --score s --dry-run\n" +
		"redisdelay import orders --zset jobs --hash job-bodies --score ms --keyed\n" +
		"redisdelay import mails --from asynq --queue default"
	return cmd
}

func (a *app) importFrom(ctx context.Context, args []string) error {
	in := a.in
	if len(args) == 2 && args[1] != "-" {
		f, err := os.Open(args[1])
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it is only read
		in = f
	}
	bar := a.newBar("imported", 0)
	progress, err := a.admin.Import(ctx, args[0], in, bar.update)
	bar.clear()
	result := operationJSON{Topic: args[0], Operation: "import"}
	result.set(progress, err)
	again := ""
	if ctx.Err() != nil {
		again = "; import it again to finish"
	}
	failed := a.reply(result, "imported %s%s%s", humanize.Count(progress.Done, "message", "messages"), result.skips(), again)
	return outcome(ctx, errors.Join(err, failed), progress, false)
}
