package jsontext

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIsUnicode(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a":"b"}`: true, `"é"`: true, `"\u00e9\ud7ff\ue000"`: true, `"\ud83d\ude00"`: true, `"\uD83D\uDE00x"`: true, `"\\ud800"`: true,
		"\"line\n\"": true, "\"\xff\"": false, `"\ud800"`: false, `"\udcff"`: false, `"\ud83dx"`: false, `"\ude00\ud83d"`: false,
		`"\\\ud800"`: false,
	} {
		assert.Equal(t, want, IsUnicode([]byte(text)), text)
	}
}
