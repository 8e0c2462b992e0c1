package cron

import (
	"fmt"
	"strconv"
	"strings"
)

var days = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}

var months = []string{
	"", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
}

// Words says for people when an expression happens: "on Monday at 07:00".
func Words(expression string) string {
	if rest, every := strings.CutPrefix(expression, "@every "); every {
		return "every " + strings.TrimSpace(rest)
	}
	if name, is := strings.CutPrefix(expression, "@"); is {
		return name
	}
	f := strings.Fields(strings.ReplaceAll(expression, "?", "*"))
	if len(f) != 5 {
		return expression
	}
	words := clockWords(f[0], f[1])
	switch date, day := dateWords(f[2]), dayWords(f[4]); {
	case date != "" && day != "":
		words = date + " or " + day + " " + words
	case date+day != "":
		words = date + day + " " + words
	case f[3] == "*" && strings.HasPrefix(words, "at ") && !strings.HasPrefix(words, "at minute"):
		words = "daily " + words
	}
	if f[3] != "*" {
		words += " in " + listed(f[3], months)
	}
	return words
}

// clockWords says which minutes.
func clockWords(minute, hour string) string {
	m, fixedMinute := number(minute)
	switch {
	case minute == "*" && hour == "*":
		return "every minute"
	case hour == "*" && strings.HasPrefix(minute, "*/"):
		return every(minute[2:], "minutes", 60, "hour")
	case hour == "*" && fixedMinute:
		return fmt.Sprintf("hourly at minute %d", m)
	case fixedMinute && strings.HasPrefix(hour, "*/"):
		return fmt.Sprintf("%s at minute %d", every(hour[2:], "hours", 24, "day"), m)
	case fixedMinute && !strings.ContainsAny(hour, "*/-"):
		var clocks []string
		for _, one := range strings.Split(hour, ",") {
			h, _ := number(one)
			clocks = append(clocks, fmt.Sprintf("%02d:%02d", h, m))
		}
		return "at " + and(clocks)
	default:
		return "at minute " + minute + " of hour " + hour
	}
}

// every says a step. One that does not divide the whole begins anew with it: */45 is :00 and :45.
func every(step, unit string, of int, whole string) string {
	words := "every " + step + " " + unit
	if n, is := number(step); is && n > 0 && of%n != 0 {
		words += " of each " + whole
	}
	return words
}

func dateWords(field string) string {
	if field == "*" {
		return ""
	}
	return "on day " + listed(field, nil) + " of the month"
}

func dayWords(field string) string {
	switch strings.ToUpper(field) {
	case "*":
		return ""
	case "1-5", "MON-FRI":
		return "on weekdays"
	default:
		return "on " + listed(field, days)
	}
}

// listed names what is in a field, as far as it has numbers.
func listed(field string, names []string) string {
	var words []string
	for _, part := range strings.Split(field, ",") {
		from, to, isRange := strings.Cut(part, "-")
		word := named(from, names)
		if isRange {
			word += " to " + named(to, names)
		}
		words = append(words, word)
	}
	return and(words)
}

func named(text string, names []string) string {
	if n, is := number(text); is && n >= 0 && n < len(names) {
		return names[n]
	}
	for _, name := range names {
		if len(text) == 3 && len(name) > 3 && strings.EqualFold(text, name[:3]) {
			return name
		}
	}
	return text
}

func number(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil
}

func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
