package dashboard

import (
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// Config configures a Dashboard.
type Config struct {
	// Admin reads and changes the topics. Required.
	Admin *admin.Admin

	// Scheduler reads and changes the schedules. Default: none, no page of schedules.
	Scheduler *periodic.Scheduler

	// Access returns what a request may do. It is called for each request and each update of an open page,
	// concurrently. Default: ReadOnly for all requests.
	Access func(*http.Request) Access

	// Actor names the user of a request, for pauses and the log. Default: the user of HTTP basic authentication, or the
	// address of the client.
	Actor func(*http.Request) string

	// DecodePayload turns the payload of a message into text, such as protobuf into JSON. It is called concurrently, and only
	// for requests that may read payloads. An error is shown in place of the payload. Default: indented JSON, other
	// text unchanged, or hex.
	DecodePayload func(topic string, msg *message.Message) (string, error)

	// Redact changes a copy of a message before its payload and metadata are shown or searched, for example to remove
	// names. It is called concurrently. Payloads cannot be downloaded then. It does not apply to keys, errors and the
	// reasons of dead messages. Default: none.
	Redact func(topic string, msg *message.Message)

	// Environment is a badge on each page, such as "production". Default: none.
	Environment string

	// RefreshInterval is how often an open page is refreshed. Open pages of the same content are read and rendered once in an
	// interval, or in 20 times as long as that took, up to 10s. At least 1s. Default: 1s.
	RefreshInterval time.Duration

	// Logger logs each change: the actor, the action and the number of messages, without payloads. Default: none.
	Logger watermill.LoggerAdapter
}

func (c *Config) setDefaults() {
	if c.Access == nil {
		c.Access = func(*http.Request) Access { return ReadOnly() }
	}
	if c.Actor == nil {
		c.Actor = actorOf
	}
	if c.RefreshInterval == 0 {
		c.RefreshInterval = time.Second
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

// Validate reports the first invalid field as a *redisdelay.ConfigError. A zero field counts as its default.
func (c Config) Validate() error {
	switch {
	case c.Admin == nil:
		return &redisdelay.ConfigError{Field: "Admin", Problem: "is nil"}
	case c.RefreshInterval != 0 && c.RefreshInterval < time.Second:
		return &redisdelay.ConfigError{Field: "RefreshInterval", Problem: "is " + c.RefreshInterval.String() + ", want at least 1s"}
	}
	return nil
}
