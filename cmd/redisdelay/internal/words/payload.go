package words

import (
	"encoding/json"
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
	depth, fresh := 0, false // fresh: nothing has come since an object or array began
	line := func() {
		if depth > maxDepth {
			return
		}
		out = append(out, '\n')
		for range depth {
			out = append(out, "  "...)
		}
	}
	for read < len(text) && len(out) < maxPayload {
		c := text[read]
		switch c {
		case ' ', '\t', '\r', '\n':
			read++
			continue
		case '}', ']':
			if !fresh {
				closing := depth
				if depth--; closing <= maxDepth {
					line()
				}
			} else {
				depth--
			}
			out, fresh, read = append(out, c), false, read+1
			continue
		}
		if fresh {
			line()
		}
		fresh = c == '{' || c == '['
		end := token(text, read)
		end = min(end, read+maxPayload)
		out = append(out, text[read:end]...)
		switch read = end; c {
		case '{', '[':
			depth++
		case ',':
			line()
		case ':':
			out = append(out, ' ')
		}
	}
	for len(out) > 0 && read < len(text) && !utf8.RuneStart(text[read]) {
		out, read = out[:len(out)-1], read-1
	}
	return out, read
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
