package redisdelay_test

import (
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
		"most partitions":               {pub{Client: client, Partitions: 256}, ""},
		"too many partitions":           {pub{Client: client, Partitions: 257}, "Partitions"},
		"negative partitions":           {pub{Client: client, Partitions: -1}, "Partitions"},
		"negative MaxMessageBytes":      {pub{Client: client, MaxMessageBytes: -1}, "MaxMessageBytes"},
		"MaxMessageBytes beyond Redis":  {pub{Client: client, MaxMessageBytes: 512<<20 + 1}, "MaxMessageBytes"},
		"negative PublishTimeout":       {pub{Client: client, PublishTimeout: -1}, "PublishTimeout"},
		"replicas":                      {pub{Client: client, WaitReplicas: 2}, ""},
		"negative replicas":             {pub{Client: client, WaitReplicas: -1}, "WaitReplicas"},
		"replicas of a ring":            {pub{Client: ring, WaitReplicas: 1}, "WaitReplicas"},
		"a ring":                        {pub{Client: ring}, ""},
		"WaitTimeout as long as a read": {pub{Client: client, WaitReplicas: 1, WaitTimeout: 2 * time.Second}, "WaitTimeout"},
		"WaitTimeout without effect":    {pub{Client: client, WaitTimeout: 2 * time.Second}, ""},
		"WaitTimeout below 1ms":         {pub{Client: client, WaitTimeout: time.Microsecond}, "WaitTimeout"},

		"subscriber defaults":         {sub{Client: client}, ""},
		"subscriber without a client": {sub{}, "Client"},
		"subscriber's prefix":         {sub{Client: client, Prefix: "{a"}, "Prefix"},
		"most in flight":              {sub{Client: client, MaxInFlight: 1000}, ""},
		"too many in flight":          {sub{Client: client, MaxInFlight: 1001}, "MaxInFlight"},
		"negative in flight":          {sub{Client: client, MaxInFlight: -1}, "MaxInFlight"},
		"shortest lease":              {sub{Client: client, LeaseDuration: 100 * time.Millisecond}, ""},
		"too short a lease":           {sub{Client: client, LeaseDuration: 99 * time.Millisecond}, "LeaseDuration"},
		"negative MaxDeliveries":      {sub{Client: client, MaxDeliveries: -1}, "MaxDeliveries"},
		"negative PollInterval":       {sub{Client: client, PollInterval: -1}, "PollInterval"},
		"negative CloseTimeout":       {sub{Client: client, CloseTimeout: -1}, "CloseTimeout"},
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
