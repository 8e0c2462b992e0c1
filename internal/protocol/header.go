package protocol

import (
	"regexp"
	"strings"
)

var (
	argument = regexp.MustCompile(`^ARGV\[(\d+(?:\.\.)?)\] +(.*)$`)
	column   = regexp.MustCompile(`^(\S(?:.*?\S)??) {2,}(.*)$`)
)

// headerOf reads the comment that a script begins with: what it does, a line for each argument, what it
// returns, and perhaps more. A line with more space in front goes on with the one before.
func headerOf(text string) (d Script) {
	var notes []string
	d.Args = []Arg{}
	into := &d.Does
	for i, line := range headerLines(text) {
		arg := argument.FindStringSubmatch(line)
		switch {
		case i == 0:
			_, d.Does, _ = strings.Cut(line, ": ")
		case line == "":
			notes = append(notes, "")
			into = &notes[len(notes)-1]
		case strings.HasPrefix(line, "KEYS "):
			into = new(string) // they are declared; see script.Script
		case arg != nil:
			d.Args = append(d.Args, argOf(arg[1], arg[2]))
			into = &d.Args[len(d.Args)-1].About
		case strings.HasPrefix(line, "Returns "):
			d.Returns = strings.TrimSpace(strings.TrimPrefix(line, "Returns "))
			into = &d.Returns
		default:
			*into = appended(*into, line, into == &d.Returns)
		}
	}
	d.Notes = strings.Join(nonempty(notes), "\n")
	return d
}

// headerLines are the lines of the header without the marks of a comment.
func headerLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		comment, is := strings.CutPrefix(line, "--")
		if !is {
			break
		}
		lines = append(lines, strings.TrimSuffix(strings.TrimPrefix(comment, " "), "\n"))
	}
	return lines
}

// argOf reads "name  about", "name", or a text that says both.
func argOf(index, text string) Arg {
	if m := column.FindStringSubmatch(text); m != nil {
		return Arg{Index: index, Name: m[1], About: m[2]}
	}
	if !strings.Contains(text, " ") {
		return Arg{Index: index, Name: text}
	}
	return Arg{Index: index, About: text}
}

// appended adds a line to a text: behind a space, or, of replies, on a line of its own if a new one begins.
func appended(text, line string, replies bool) string {
	line = strings.TrimSpace(line)
	switch {
	case text == "":
		return line
	case replies && strings.HasPrefix(line, "{ '"):
		return text + "\n" + line
	default:
		return text + " " + line
	}
}

func nonempty(list []string) (kept []string) {
	for _, text := range list {
		if text != "" {
			kept = append(kept, text)
		}
	}
	return kept
}
