package humanize

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzPayload: what is shown is bounded and clean, and of JSON the same tokens.
func FuzzPayload(f *testing.F) {
	for _, seed := range []string{
		"", "x", `{"a":[1,2.50,{"b":"c\"]"}],"d":{},"e":[ ]} `, `{"n": 1, `, "\xff\x1b[2J", "1E400", `"é"`, "[[]", " [ ] ",
		strings.Repeat("[", 9000) + strings.Repeat("]", 9000), `"` + strings.Repeat("é", 40000) + `"`, strings.Repeat("é", 40000),
		"[" + strings.Repeat("[[1]],", 9000) + "1]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		text, left := Payload(payload)
		if len(text) > 10*maxPayload || left < 0 || left > len(payload) || len(payload) < maxPayload/100 && left > 0 {
			t.Fatalf("%d bytes are shown of %d, and %d left", len(text), len(payload), left)
		}
		for _, r := range text {
			if r != '\n' && r != ' ' && !unicode.IsPrint(r) {
				t.Fatalf("%U is shown", r)
			}
		}
		if utf8.Valid(payload) && (strings.Contains(text, `\xc3`) && !bytes.Contains(payload, []byte(`\xc3`))) {
			t.Fatal("a character is cut in two")
		}
		var want, got bytes.Buffer
		if left > 0 || json.Compact(&want, payload) != nil || Lines(want.String()) != want.String() {
			return
		}
		if err := json.Compact(&got, []byte(text)); err != nil || !bytes.Equal(want.Bytes(), got.Bytes()) {
			t.Fatalf("%q became %q", payload, text)
		}
	})
}
