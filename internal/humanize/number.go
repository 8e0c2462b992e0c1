package humanize

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Number writes a number with its thousands separated.
func Number[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// Count writes a number of things: "1 message", "2,000 messages".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + many
}

// Times writes how often: "once", "3 times".
func Times(n int) string {
	if n == 1 {
		return "once"
	}
	return Number(n) + " times"
}

// Bytes writes a size with a unit.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < 4 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[unit])
}

// Clean makes text safe for a terminal: on one line, without control characters. A program
// that publishes must not be able to move the cursor of the person who looks.
func Clean(text string) string {
	if !strings.ContainsFunc(text, unprintable) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 || unprintable(r) {
			quoted := strconv.Quote(text[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

// Lines is Clean for text of several lines.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Clean(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// Cut shortens text to so many characters.
func Cut(text string, length int) string {
	end, n := 0, 0 // of what stays if there is more
	for i := range text {
		if n++; n == length {
			end = i
		}
		if n > length {
			return text[:end] + "…"
		}
	}
	return text
}

// Start is the beginning of text of any size on one clean line of so many characters.
func Start(text string, length int) string {
	return Cut(Clean(text[:min(len(text), utf8.UTFMax*(length+1))]), length)
}

func unprintable(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }
