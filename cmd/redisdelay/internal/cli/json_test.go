package cli

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestJSONObjectsFollowTheRules that docs/operate/cli.md describes.
func TestJSONObjectsFollowTheRules(t *testing.T) {
	number := 7
	for name, c := range map[string]struct {
		of   any
		want string
	}{
		"names in camel case":      {struct{ DueAt, ID string }{"a", "b"}, `{"dueAt":"a","id":"b"}`},
		"unexported":               {struct{ hidden, Shown int }{1, 2}, `{"shown":2}`},
		"embedded":                 {struct{ topicJSON }{topicJSON{"orders"}}, `{"topic":"orders"}`},
		"time in UTC":              {struct{ At time.Time }{time.UnixMilli(1500).In(time.FixedZone("", 3600))}, `{"at":"1970-01-01T00:00:01.500Z"}`},
		"duration":                 {struct{ Overdue time.Duration }{1500 * time.Millisecond}, `{"overdueMs":1500}`},
		"error":                    {struct{ Err error }{errors.New("no")}, `{"err":"no"}`},
		"empty text and time":      {struct{ Text, At any }{"", time.Time{}}, `{}`},
		"nil":                      {struct{ Matching *int }{}, `{}`},
		"pointer":                  {struct{ Matching *int }{&number}, `{"matching":7}`},
		"number, boolean, list":    {struct{ N, B, L any }{0, false, []string(nil)}, `{"n":0,"b":false,"l":[]}`},
		"no UTF-8":                 {struct{ Key string }{"\xff"}, `{"key64":"/w=="}`},
		"list":                     {struct{ Behind []string }{[]string{"a", ""}}, `{"behind":["a",""]}`},
		"no UTF-8 in a list":       {struct{ Behind []string }{[]string{"a", "\xff"}}, `{"behind64":["YQ==","/w=="]}`},
		"list of objects":          {struct{ List []topicJSON }{[]topicJSON{{"a"}}}, `{"list":[{"topic":"a"}]}`},
		"no UTF-8 in a map":        {struct{ M map[string]string }{map[string]string{"a": "b", "c": "\xff"}}, `{"m":{"a":"b"},"m64":{"Yw==":"/w=="}}`},
		"no UTF-8 in a number's":   {struct{ Holds map[string]int }{map[string]int{"a": 1, "\xff": 2}}, `{"holds":{"a":1},"holds64":{"/w==":2}}`},
		"a map that holds nothing": {struct{ M map[string]int }{}, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(objectOf(reflect.ValueOf(c.of)))
			require.NoError(t, err)
			assert.Equal(t, c.want, string(text))
		})
	}
}
