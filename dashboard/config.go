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
	// Admin reads and changes the topics. It is required.
	Admin *admin.Admin

	// Periodic has the schedules. Default: none, and there is no page of schedules.
	Periodic *periodic.Periodic

	// Access says what a request may do. It is called for each request, and again whenever an open page may be updated, also
	// concurrently. Default: ReadOnly, for everybody who can reach the Dashboard.
	Access func(*http.Request) Access

	// Actor names the person behind a request: as the one who has paused a group, and in the log. Default: the user of
	// HTTP's basic authentication, or the address that the request came from.
	Actor func(*http.Request) string

	// Decode turns the payload of a message into text for people, such as JSON made of protobuf. It is called concurrently,
	// and only for those who may see payloads. An error is shown in place of the payload. Default: JSON with indentation, other
	// text as it is, or hex.
	Decode func(topic string, msg *message.Message) (string, error)

	// Redact changes a copy of a message before anybody sees its payload or its metadata, such as to take out a name. It is called
	// concurrently. Decode and the search in payloads get what it leaves; a payload cannot be downloaded then. Keys, the errors
	// of handlers and the reasons of dead letters are shown as they are. Default: nothing is changed.
	Redact func(topic string, msg *message.Message)

	// Environment is shown as a badge on each page, such as "production". Default: none.
	Environment string

	// Interval is how often an open page is refreshed. All pages of the process share what was read from Redis in an interval. A
	// result that took long to read is shared for 20 times as long, up to 10s. Default: 1s, which is the least.
	Interval time.Duration

	// Logger gets a line for each change: who, what, and how many messages. No line has a payload. Default: none.
	Logger watermill.LoggerAdapter
}

func (c *Config) setDefaults() {
	if c.Access == nil {
		c.Access = func(*http.Request) Access { return ReadOnly() }
	}
	if c.Actor == nil {
		c.Actor = actorOf
	}
	if c.Interval == 0 {
		c.Interval = time.Second
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

// Validate says what is wrong with the Config, after defaults. The error is a *redisdelay.ConfigError.
func (c Config) Validate() error {
	switch {
	case c.Admin == nil:
		return &redisdelay.ConfigError{Field: "Admin", Problem: "is nil"}
	case c.Interval != 0 && c.Interval < time.Second:
		return &redisdelay.ConfigError{Field: "Interval", Problem: "is " + c.Interval.String() + ", want at least 1s"}
	}
	return nil
}
