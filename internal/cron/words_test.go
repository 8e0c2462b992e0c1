package cron

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWords(t *testing.T) {
	for expression, want := range map[string]string{
		"0 7 * * 1": "on Monday at 07:00", "30 6,18 * * *": "daily at 06:30 and 18:30",
		"*/15 * * * *": "every 15 minutes", "*/45 * * * *": "every 45 minutes of each hour",
		"0 */5 * * *": "every 5 hours of each day at minute 0", "0 9 * * MON-FRI": "on weekdays at 09:00",
		"@every 15m": "every 15m", "@daily": "daily", "0 0 1 1,7 *": "on day 1 of the month at 00:00 in January and July",
		"5 * * * *": "hourly at minute 5", "0 */2 * * 6-7": "on Saturday to Sunday every 2 hours at minute 0",
		"0-9 8-10 * * *": "at minute 0-9 of hour 8-10",
		"5 ? * * *":      "hourly at minute 5", "?/5 * ? * ?": "every 5 minutes", "0 0 * ? *": "daily at 00:00",
		"0 0 13 * 5":   "on day 13 of the month or on Friday at 00:00",
		"0 7 * 1--5 *": "at 07:00 in January to -5", // Parse refuses it
	} {
		assert.Equal(t, want, Words(expression), expression)
	}
}
