package humanize

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

const (
	maxPayload = 32 << 10 // bytes of a payload that are shown
	maxDepth   = 32       // JSON that is deeper is not spread over lines: indentation grows with the depth
)

// Payload is the beginning of a payload for people, on clean lines, JSON with indentation. left
// is how many of its bytes are not shown.
func Payload(payload []byte) (text string, left int) {
	if json.Valid(payload) {
		indented, read := indent(payload)
		return Lines(string(indented)), len(payload) - read
	}
	end := min(len(payload), maxPayload)
	for end < len(payload) && end > maxPayload-utf8.UTFMax && !utf8.RuneStart(payload[end]) {
		end--
	}
	return Lines(string(payload[:end])), len(payload) - end
}

// indent spreads valid JSON over lines until that is long enough, and says how much it has read.
// All tokens stay as they are: a number keeps all its digits.
func indent(text []byte) (out []byte, read int) {
	var i indenter
	for read < len(text) && len(i.out) < maxPayload {
		end := token(text, read)
		i.add(text[read:min(end, read+maxPayload)])
		read = min(end, read+maxPayload)
	}
	for read < len(text) && !utf8.RuneStart(text[read]) { // it ends within a string
		i.out, read = i.out[:len(i.out)-1], read-1
	}
	return i.out, read
}

// indenter writes tokens of JSON on lines.
type indenter struct {
	out   []byte
	depth int
	fresh bool // nothing has come since an object or array began
}

func (i *indenter) add(token []byte) {
	switch c := token[0]; c {
	case ' ', '\t', '\r', '\n':
		return
	case '}', ']':
		i.depth--
		if !i.fresh && i.depth < maxDepth {
			i.line()
		}
		i.out, i.fresh = append(i.out, c), false
	default:
		if i.fresh {
			i.line()
		}
		i.out, i.fresh = append(i.out, token...), c == '{' || c == '['
		i.after(c)
	}
}

func (i *indenter) after(c byte) {
	switch c {
	case '{', '[':
		i.depth++
	case ',':
		i.line()
	case ':':
		i.out = append(i.out, ' ')
	}
}

func (i *indenter) line() {
	if i.depth <= maxDepth {
		i.out = append(append(i.out, '\n'), strings.Repeat("  ", i.depth)...)
	}
}

// token is where the token ends that begins at a place: a string, a number or word, or one sign.
func token(text []byte, at int) int {
	if text[at] != '"' {
		end := at + 1
		for end < len(text) && isWord(text[at]) && isWord(text[end]) {
			end++
		}
		return end
	}
	for end := at + 1; ; end++ {
		switch text[end] {
		case '\\':
			end++
		case '"':
			return end + 1
		}
	}
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.'
}
