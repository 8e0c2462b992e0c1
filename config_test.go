package redisdelay_test

import (
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

func TestConfigsAreValidated(t *testing.T) {
	type (
		pub = redisdelay.PublisherConfig
		sub = redisdelay.SubscriberConfig
	)
	client := redis.NewClient(&redis.Options{ReadTimeout: 2 * time.Second})
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		require.NoError(t, ring.Close())
	})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{ReadTimeout: 2 * time.Second})
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	var none *redis.Client
	tests := map[string]struct {
		config interface{ Validate() error }
		field  string // empty: it is valid
	}{
		"publisher defaults":            {pub{Client: client}, ""},
		"publisher without a client":    {pub{}, "Client"},
		"publisher with a nil client":   {pub{Client: none}, "Client"},
		"prefix with a brace":           {pub{Client: client, Prefix: "a}"}, "Prefix"},
		"prefix with colons":            {pub{Client: client, Prefix: "app:jobs"}, ""},
		"unknown OnDuplicate":           {pub{Client: client, OnDuplicate: "maybe"}, "OnDuplicate"},
		"a window":                      {pub{Client: client, DeduplicationWindow: time.Hour}, ""},
		"a window, ignoring":            {pub{Client: client, DeduplicationWindow: time.Hour, OnDuplicate: redisdelay.IgnoreDuplicate}, ""},
		"a window, replacing":           {pub{Client: client, DeduplicationWindow: time.Hour, OnDuplicate: redisdelay.ReplaceDuplicate}, "DeduplicationWindow"},
		"shortest window":               {pub{Client: client, DeduplicationWindow: time.Millisecond}, ""},
		"a window below 1ms":            {pub{Client: client, DeduplicationWindow: 999 * time.Microsecond}, "DeduplicationWindow"},
		"a negative window":             {pub{Client: client, DeduplicationWindow: -1}, "DeduplicationWindow"},
		"an endless window":             {pub{Client: client, DeduplicationWindow: math.MaxInt64}, "DeduplicationWindow"},
		"most partitions":               {pub{Client: client, Partitions: 192}, ""},
		"too many partitions":           {pub{Client: client, Partitions: 193}, "Partitions"},
		"negative partitions":           {pub{Client: client, Partitions: -1}, "Partitions"},
		"negative MaxMessageBytes":      {pub{Client: client, MaxMessageBytes: -1}, "MaxMessageBytes"},
		"MaxMessageBytes beyond Redis":  {pub{Client: client, MaxMessageBytes: 512<<20 + 1}, "MaxMessageBytes"},
		"negative MaxPending":           {pub{Client: client, MaxPending: -1}, "MaxPending"},
		"negative PublishTimeout":       {pub{Client: client, PublishTimeout: -1}, "PublishTimeout"},
		"replicas":                      {pub{Client: client, WaitReplicas: 2}, ""},
		"negative replicas":             {pub{Client: client, WaitReplicas: -1}, "WaitReplicas"},
		"a ring":                        {pub{Client: ring}, "Client"},
		"a wrapped ring":                {pub{Client: struct{ *redis.Ring }{ring}}, "Client"},
		"a wrapped client":              {pub{Client: struct{ *redis.Client }{client}}, ""},
		"a Cluster client":              {pub{Client: cluster}, ""},
		"a wrapped Cluster client":      {pub{Client: struct{ *redis.ClusterClient }{cluster}}, ""},
		"a client that hides its kind":  {pub{Client: struct{ redis.UniversalClient }{client}}, "Client"},
		"half a Cluster client":         {pub{Client: halfCluster{cluster, cluster}}, "Client"},
		"WaitTimeout as long as a read": {pub{Client: client, WaitReplicas: 1, WaitTimeout: 2 * time.Second}, "WaitTimeout"},
		"WaitTimeout without effect":    {pub{Client: client, WaitTimeout: 2 * time.Second}, ""},
		"WaitTimeout below 1ms":         {pub{Client: client, WaitTimeout: time.Microsecond}, "WaitTimeout"},
		"WaitTimeout of a wrapped Cluster client": {
			pub{Client: struct{ *redis.ClusterClient }{cluster}, WaitReplicas: 1, WaitTimeout: 2 * time.Second}, "WaitTimeout",
		},
		"PublishTimeout without a unit": {pub{Client: client, PublishTimeout: 10}, "PublishTimeout"},
		"shortest PublishTimeout":       {pub{Client: client, PublishTimeout: 10 * time.Millisecond}, ""},
		"endless PublishTimeout":        {pub{Client: client, PublishTimeout: math.MaxInt64}, "PublishTimeout"},

		"subscriber defaults":         {sub{Client: client}, ""},
		"subscriber without a client": {sub{}, "Client"},
		"subscriber's prefix":         {sub{Client: client, Prefix: "{a"}, "Prefix"},
		"most in flight":              {sub{Client: client, MaxInFlight: 1000}, ""},
		"too many in flight":          {sub{Client: client, MaxInFlight: 1001}, "MaxInFlight"},
		"negative in flight":          {sub{Client: client, MaxInFlight: -1}, "MaxInFlight"},
		"shortest lease":              {sub{Client: client, LeaseDuration: 100 * time.Millisecond}, ""},
		"too short a lease":           {sub{Client: client, LeaseDuration: 99 * time.Millisecond}, "LeaseDuration"},
		"negative MaxDeliveries":      {sub{Client: client, MaxDeliveries: -1}, "MaxDeliveries"},
		"least buffer":                {sub{Client: client, MaxBufferBytes: 1 << 20}, ""},
		"too small a buffer":          {sub{Client: client, MaxBufferBytes: 1<<20 - 1}, "MaxBufferBytes"},
		"a subscriber's ring":         {sub{Client: ring}, "Client"},
		"PollInterval without a unit": {sub{Client: client, PollInterval: 5}, "PollInterval"},
		"shortest PollInterval":       {sub{Client: client, PollInterval: 100 * time.Millisecond}, ""},
		"CloseTimeout without a unit": {sub{Client: client, CloseTimeout: 10}, "CloseTimeout"},
		"endless CloseTimeout":        {sub{Client: client, CloseTimeout: math.MaxInt64}, "CloseTimeout"},
		"shortest GroupExpiry":        {sub{Client: client, GroupExpiry: time.Second}, ""},
		"too short a GroupExpiry":     {sub{Client: client, GroupExpiry: time.Second - 1}, "GroupExpiry"},
		"negative GroupExpiry":        {sub{Client: client, GroupExpiry: -1}, "GroupExpiry"},
		"Broadcast":                   {sub{Client: client, ConsumerGroup: redisdelay.Broadcast}, ""},
		"all groups":                  {sub{Client: client, ConsumerGroup: redisdelay.AllGroups}, "ConsumerGroup"},
		"Broadcast for ever":          {sub{Client: client, ConsumerGroup: redisdelay.Broadcast, GroupExpiry: -1}, "GroupExpiry"},
		"unknown OnExpired":           {sub{Client: client, OnExpired: "ignore"}, "OnExpired"},
		"endless lease":               {sub{Client: client, LeaseDuration: math.MaxInt64}, "LeaseDuration"},
		"negative PollInterval":       {sub{Client: client, PollInterval: -1}, "PollInterval"},
		"shortest PingInterval":       {sub{Client: client, PingInterval: 100 * time.Millisecond}, ""},
		"PingInterval without a unit": {sub{Client: client, PingInterval: 2}, "PingInterval"},
		"negative CloseTimeout":       {sub{Client: client, CloseTimeout: -1}, "CloseTimeout"},
		"limits":                      {sub{Client: client, GroupLimits: redisdelay.GroupLimits{MaxInFlight: 5, Rate: redisdelay.Rate{Messages: 100}}}, ""},
		"negative group limit":        {sub{Client: client, GroupLimits: redisdelay.GroupLimits{MaxInFlight: -1}}, "GroupLimits.MaxInFlight"},
		"negative rate":               {sub{Client: client, GroupLimits: redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: -1}}}, "GroupLimits.Rate.Messages"},
		"negative burst":              {sub{Client: client, GroupLimits: redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: 1, Burst: -1}}}, "GroupLimits.Rate.Burst"},
		"a rate without messages":     {sub{Client: client, GroupLimits: redisdelay.GroupLimits{Rate: redisdelay.Rate{Burst: 1}}}, "GroupLimits.Rate.Messages"},
		"a rate without a unit":       {sub{Client: client, GroupLimits: redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: 1, Per: 5}}}, "GroupLimits.Rate.Per"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.config.Validate()
			if test.field == "" {
				require.NoError(t, err)
				return
			}
			var wrong *redisdelay.ConfigError
			require.ErrorAs(t, err, &wrong)
			assert.Equal(t, test.field, wrong.Field)
			switch config := test.config.(type) {
			case pub:
				_, made := redisdelay.NewPublisher(config, nil)
				assert.Equal(t, err, made, "the constructor says the same")
			case sub:
				_, made := redisdelay.NewSubscriber(config, nil)
				assert.Equal(t, err, made, "the constructor says the same")
			}
		})
	}
}

// halfCluster forwards only some of the methods needed.
type halfCluster struct {
	redis.UniversalClient
	inner *redis.ClusterClient
}

func (h halfCluster) Options() *redis.ClusterOptions { return h.inner.Options() }

func TestConfigErrorsSuggestALikelyFix(t *testing.T) {
	type (
		pub = redisdelay.PublisherConfig
		sub = redisdelay.SubscriberConfig
	)
	client := redis.NewClient(&redis.Options{})
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		require.NoError(t, ring.Close())
	})
	for want, config := range map[string]interface{ Validate() error }{
		"PollInterval is 5ns, want at least 100ms: did you mean 5*time.Second?":            sub{Client: client, PollInterval: 5},
		"PollInterval is 500ns, want at least 100ms: did you mean 500*time.Millisecond?":   sub{Client: client, PollInterval: 500},
		"PollInterval is 5ms, want at least 100ms":                                         sub{Client: client, PollInterval: 5 * time.Millisecond},
		"LeaseDuration is 30ns, want at least 100ms: did you mean 30*time.Second?":         sub{Client: client, LeaseDuration: 30},
		"CloseTimeout is -1ns, want at least 1ms":                                          sub{Client: client, CloseTimeout: -1},
		"PublishTimeout is 10ns, want at least 10ms: did you mean 10*time.Second?":         pub{Client: client, PublishTimeout: 10},
		"WaitTimeout is 300ns, want at least 1ms: did you mean 300*time.Millisecond?":      pub{Client: client, WaitTimeout: 300},
		"Client is a redis.Ring: while a shard is down, its topics move to another one":    pub{Client: ring},
		"embed *redis.Client or *redis.ClusterClient instead of the interface, or forward": pub{Client: struct{ redis.UniversalClient }{client}},
	} {
		assert.ErrorContains(t, config.Validate(), want)
	}
}
