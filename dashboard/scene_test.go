package dashboard

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// scene is a topic of one test with a dashboard.
type scene struct {
	*fixture.Scene
	admin     *admin.Admin
	dashboard *Dashboard
	server    *httptest.Server
}

// open serves a dashboard with what a test changes of its config.
func open(s *fixture.Scene, change ...func(*Config)) *scene {
	s.T.Helper()
	prefix := "redisdelay"
	a, err := admin.New(admin.Config{Client: s.Client, Prefix: prefix})
	require.NoError(s.T, err)
	config := Config{Admin: a, Access: func(*http.Request) Access { return FullAccess() }, Logger: s.Log}
	for _, c := range change {
		c(&config)
	}
	d, err := New(config)
	require.NoError(s.T, err)
	server := httptest.NewServer(d)
	s.T.Cleanup(func() {
		require.NoError(s.T, d.Close())
		server.Close()
	})
	return &scene{Scene: s, admin: a, dashboard: d, server: server}
}

func newScene(t *testing.T, change ...func(*Config)) *scene {
	t.Helper()
	return open(fixture.New(t), change...)
}

// at is the query of a page of the topic.
func (s *scene) at(pairs ...string) string {
	values := url.Values{"topic": {s.Topic}}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return "?" + values.Encode()
}

// get gets a page.
func (s *scene) get(path string) (int, *element) {
	s.T.Helper()
	answer, err := s.server.Client().Get(s.server.URL + "/" + path)
	require.NoError(s.T, err)
	return s.read(answer)
}

func (s *scene) read(answer *http.Response) (int, *element) {
	s.T.Helper()
	defer func() { require.NoError(s.T, answer.Body.Close()) }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s.T, err)
	return answer.StatusCode, parse(s.T, string(text))
}

// page gets a page that is there.
func (s *scene) page(path string) *element {
	s.T.Helper()
	status, page := s.get(path)
	require.Equal(s.T, http.StatusOK, status, "%s: %s", path, page.text())
	return page
}

// post sends a form, and follows to where it leads.
func (s *scene) post(path string, form url.Values) (int, *element) {
	s.T.Helper()
	answer, err := s.server.Client().PostForm(s.server.URL+"/"+path, form)
	require.NoError(s.T, err)
	return s.read(answer)
}

// initialize registers groups, so that each gets what is published from then on.
func (s *scene) initialize(groups ...string) {
	s.T.Helper()
	for _, group := range groups {
		subscriber := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = group })
		require.NoError(s.T, subscriber.SubscribeInitialize(s.Topic))
	}
}

// kill dead-letters messages in a group.
func (s *scene) kill(group string, n int) {
	s.T.Helper()
	subscriber := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup, c.MaxDeliveries = group, 1 })
	messages, err := subscriber.Subscribe(context.Background(), s.Topic)
	require.NoError(s.T, err)
	for range n {
		s.receive(messages).Nack()
	}
	s.until("they are dead", func() bool {
		n2, err := s.admin.Count(s.T.Context(), s.Topic, admin.Query{Set: admin.Dead, Group: group})
		return err == nil && n2 >= n
	})
	require.NoError(s.T, subscriber.Close())
}

// bury lets a consumer give up so many messages of a group, with a reason.
func (s *scene) bury(group, reason string, n int) {
	s.T.Helper()
	before, err := s.admin.Count(s.T.Context(), s.Topic, admin.Query{Set: admin.Dead, Group: group})
	require.NoError(s.T, err)
	s.handle(group, n, func(msg *message.Message) {
		require.NoError(s.T, fixture.Delivery(s.T, msg).Bury(reason))
		msg.Nack()
	})
	s.until("they are dead", func() bool {
		now, err := s.admin.Count(s.T.Context(), s.Topic, admin.Query{Set: admin.Dead, Group: group})
		return err == nil && now == before+n
	})
}

// ack lets a consumer ack so many messages of a group.
func (s *scene) ack(group string, n int) {
	s.T.Helper()
	s.handle(group, n, func(msg *message.Message) { msg.Ack() })
}

// handle lets a consumer handle so many messages of a group, one at a time.
func (s *scene) handle(group string, n int, handle func(*message.Message)) {
	s.T.Helper()
	subscriber := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup, c.MaxInFlight = group, 1 })
	messages, err := subscriber.Subscribe(context.Background(), s.Topic)
	require.NoError(s.T, err)
	for range n {
		handle(s.receive(messages))
	}
	require.NoError(s.T, subscriber.Close())
}

func (s *scene) receive(messages <-chan *message.Message) *message.Message {
	s.T.Helper()
	select {
	case msg := <-messages:
		return msg
	case <-time.After(fixture.Soon):
		require.Fail(s.T, "no message")
		return nil
	}
}

func (s *scene) until(what string, done func() bool) {
	s.T.Helper()
	require.Eventually(s.T, done, fixture.Soon, 10*time.Millisecond, what)
}

// element is an element of a page.
type element struct {
	name     string
	attr     map[string]string
	parent   *element
	children []*element
	inner    []string // texts
}

// parse reads a page. Elements must be closed where they began.
func parse(t *testing.T, text string) *element {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	decoder.Strict, decoder.AutoClose, decoder.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	root := &element{}
	at := root
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return root
		}
		require.NoError(t, err, text)
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attr: map[string]string{}, parent: at}
			for _, a := range token.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			at.children = append(at.children, e)
			at = e
		case xml.EndElement:
			require.Equal(t, at.name, token.Name.Local, "closed out of order")
			at = at.parent
		case xml.CharData:
			at.inner = append(at.inner, string(token))
			at.children = append(at.children, &element{inner: []string{string(token)}, parent: at})
		}
	}
}

// all are the elements below with a name.
func (e *element) all(name string) (list []*element) {
	for _, child := range e.children {
		if child.name == name {
			list = append(list, child)
		}
		list = append(list, child.all(name)...)
	}
	return list
}

// first is the first element below with a name, and an attribute if one is given.
func (e *element) first(name string, attr ...string) *element {
	for _, found := range e.all(name) {
		if len(attr) == 0 || found.attr[attr[0]] == attr[1] {
			return found
		}
	}
	return &element{}
}

// title is the heading of the page of a topic, without the badge of its state.
func (e *element) title() string {
	h1 := e.first("h1")
	return strings.TrimSpace(strings.TrimSuffix(h1.text(), h1.first("span", "id", "state").text()))
}

// text is what a reader sees, in one line.
func (e *element) text() string {
	var b strings.Builder
	e.write(&b)
	return strings.Join(strings.Fields(b.String()), " ")
}

func (e *element) write(b *strings.Builder) {
	if e.name == "" && len(e.children) == 0 {
		b.WriteString(strings.Join(e.inner, " "))
	}
	for _, child := range e.children {
		child.write(b)
		if child.name != "" {
			b.WriteByte(' ')
		}
	}
}

// contextEnded is a context that has ended.
func contextEnded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

// redactSecrets hides what begins with secret.
func redactSecrets(_ string, msg *message.Message) {
	msg.Payload = secrets.ReplaceAll(msg.Payload, []byte("hidden"))
	for key, value := range msg.Metadata {
		msg.Metadata[key] = secrets.ReplaceAllString(value, "hidden")
	}
}

var secrets = regexp.MustCompile(`secret-\w+`)
