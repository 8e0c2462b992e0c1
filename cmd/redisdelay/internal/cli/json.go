package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// -o json prints Go structs, most of them of package admin, by the rules that docs/operate/cli.md describes. So the names
// are those of the exported fields. Scripts rely on them: add fields, but do not rename any.

// member is a name in a JSON object, with its value.
type member struct {
	name  string
	value any
}

// object is a JSON object that keeps the order of its names.
type object []member

// MarshalJSON writes the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	text.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			text.WriteByte(',')
		}
		if err := encoder.Encode(m.name); err != nil {
			return nil, err
		}
		text.WriteString(":")
		if err := encoder.Encode(m.value); err != nil {
			return nil, err
		}
	}
	text.WriteString("}")
	return text.Bytes(), nil
}

// objectOf returns the object of a struct. Fields of embedded structs are fields of the object.
func objectOf(v reflect.Value) (o object) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.IsExported() && !f.Anonymous {
			o = append(o, membersOf(jsonName(f.Name), v.FieldByIndex(f.Index))...)
		}
	}
	return o
}

// jsonName is the name of a Go field in JSON: id for ID, and dueAt for DueAt.
func jsonName(name string) string {
	if name == strings.ToUpper(name) {
		return strings.ToLower(name)
	}
	return strings.ToLower(name[:1]) + name[1:]
}

// membersOf returns a value with its name: one member; none if the value may be omitted; several for a Content.
func membersOf(name string, v reflect.Value) object {
	switch value := v.Interface().(type) {
	case time.Time:
		if value.IsZero() {
			return nil
		}
		return object{{name, value.UTC().Format("2006-01-02T15:04:05.000Z07:00")}}
	case time.Duration:
		return object{{name + "Ms", value.Milliseconds()}}
	case error:
		return object{{name, plain(value)}}
	case admin.Content:
		return objectOf(reflect.ValueOf(decodedOf(value)))
	case redisdelay.Pause:
		return object{{name, objectOf(reflect.ValueOf(pauseJSON{value.All, value.Since, value.Until(), value.By, value.Reason}))}}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return membersOf(name, v.Elem())
	case reflect.Struct:
		return object{{name, objectOf(v)}}
	case reflect.String:
		return textMember(name, v.String())
	case reflect.Slice:
		return listMember(name, v)
	case reflect.Map:
		return mapMembers(name, v)
	default:
		return object{{name, v.Interface()}}
	}
}

// textMember returns a member with a text or, if it is not UTF-8, with its bytes in base64.
func textMember(name, text string) object {
	switch {
	case text == "":
		return nil
	case utf8.ValidString(text):
		return object{{name, text}}
	}
	return object{{name + "64", []byte(text)}}
}

func listMember(name string, v reflect.Value) object {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return textMember(name, string(v.Bytes()))
	}
	if texts, are := v.Interface().([]string); are {
		return textsMember(name, texts)
	}
	list := []any{}
	for _, element := range v.Seq2() {
		for _, m := range membersOf("", element) {
			list = append(list, m.value)
		}
	}
	return object{{name, list}}
}

// textsMember returns a member with texts or, if one of them is not UTF-8, with all of them in base64.
func textsMember(name string, texts []string) object {
	coded := make([][]byte, len(texts))
	for i, text := range texts {
		coded[i] = []byte(text)
	}
	if slices.ContainsFunc(texts, func(text string) bool { return !utf8.ValidString(text) }) {
		return object{{name + "64", coded}}
	}
	return object{{name, append([]string{}, texts...)}}
}

// mapMembers returns a member with the entries of a map that are UTF-8, and a member with the others in base64, because
// different keys could become equal as text.
func mapMembers(name string, v reflect.Value) (o object) {
	texts, coded := map[string]any{}, map[string]any{}
	for key, value := range v.Seq2() {
		k, isText := key.String(), value.Kind() == reflect.String
		switch {
		case utf8.ValidString(k) && (!isText || utf8.ValidString(value.String())):
			texts[k] = value.Interface()
		case isText:
			coded[base64.StdEncoding.EncodeToString([]byte(k))] = []byte(value.String())
		default:
			coded[base64.StdEncoding.EncodeToString([]byte(k))] = value.Interface()
		}
	}
	if len(texts) > 0 {
		o = append(o, member{name, texts})
	}
	if len(coded) > 0 {
		o = append(o, member{name + "64", coded})
	}
	return o
}

// pauseJSON is a redisdelay.Pause with its end in place of its duration.
type pauseJSON struct {
	All          bool
	Since, Until time.Time
	By, Reason   string
}

// decodedJSON is an admin.Content in JSON.
type decodedJSON struct {
	UUID      string
	Metadata  message.Metadata
	Payload   []byte
	Body      []byte // if it cannot be decoded
	Error     error
	LastError string
}

func decodedOf(c admin.Content) decodedJSON {
	if c.Message == nil {
		return decodedJSON{Body: c.Body, Error: c.Err}
	}
	return decodedJSON{UUID: c.Message.UUID, Metadata: c.Message.Metadata, Payload: c.Message.Payload, LastError: c.LastError}
}

// operationJSON is the result of an operation on messages or groups.
type operationJSON struct {
	Topic     string
	Operation string
	Group     string
	To        string
	Matching  *int // matching messages before the operation; with ids or keys, the existing ones
	Done      int
	Skipped   int
	Reason    string // why the last skipped message was skipped
	DryRun    bool
	Complete  bool
	Cursor    string // to continue from if the operation is incomplete
}

// set sets the fields from the progress and the error of an operation.
func (o *operationJSON) set(p admin.Progress, err error) {
	o.Done, o.Skipped, o.Complete = p.Done, p.Skipped, err == nil
	if p.LastSkip != nil {
		o.Reason = plain(p.LastSkip)
	}
}

// skips describes the skipped messages.
func (o operationJSON) skips() string {
	switch {
	case o.Skipped == 0:
		return ""
	case o.Reason == "":
		return ", skipped " + humanize.Number(o.Skipped)
	}
	return ", skipped " + humanize.Number(o.Skipped) + ": " + o.Reason
}

// JSON output that is not a type of another package.
type (
	topicJSON struct{ Topic string }

	statsJSON struct {
		admin.TopicStats
		LateGroups []admin.LateGroup
	}

	countJSON struct {
		Topic string
		Count int
	}

	// cursorJSON is the line after the last entry of a page that is not the last page.
	cursorJSON struct{ NextCursor string }

	explanationJSON struct {
		Topic, ID, Key, OrderingKey, Tick, Summary string
		Groups                                     []admin.GroupExplanation
		BlockedBy                                  []string
	}

	reasonJSON struct {
		Topic string
		admin.ReasonCount
	}

	scheduleJSON struct {
		periodic.Status
		CatchUp string // none, one, or a period
	}

	// scheduleOperationJSON is the result of an operation on a schedule, or of run.
	scheduleOperationJSON struct {
		Schedule  string
		Operation string
		Stored    int
		Missed    int
	}
)
