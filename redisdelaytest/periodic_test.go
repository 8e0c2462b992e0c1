package redisdelaytest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/periodic"
	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

func TestAReportIsDeliveredAtNineOnEachWeekdayOfMarch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := redisdelaytest.New(t)
		r.Advance(60 * 24 * time.Hour) // from 2000-01-01 to March; clocks are put forward on the 26th
		berlin, err := time.LoadLocation("Europe/Berlin")
		require.NoError(t, err)
		var reports []string
		handle(t, r.SubscriberConfig("reporters"), "reports", func(msg *message.Message) error {
			tick, _ := periodic.TickOf(msg)
			assert.True(t, tick.Nominal.Equal(time.Now()), "%s comes at %s", tick, time.Now())
			reports = append(reports, time.Now().In(berlin).Format("Mon 02 15:04"))
			return nil
		})
		runSchedules(t, r, periodic.Schedule{ID: "report", Topic: "reports", Cron: "0 9 * * MON-FRI", Zone: "Europe/Berlin"})

		r.Advance(31 * 24 * time.Hour)
		assert.Len(t, reports, 23)
		assert.Equal(t, []string{"Fri 24 09:00", "Mon 27 09:00"}, reports[17:19])
	})
}

func runSchedules(t *testing.T, r *redisdelaytest.Redis, schedules ...periodic.Schedule) {
	t.Helper()
	// No other process declares schedules, so Run need not check for them often.
	p, err := periodic.New(periodic.Config{Client: r.Client(), PollInterval: 24 * time.Hour}, nil)
	require.NoError(t, err)
	_, err = p.Apply(t.Context(), "tests", 1, schedules)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
}
