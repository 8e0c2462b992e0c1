package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/redis/go-redis/v9"
)

const (
	firstReminder = 1500 * time.Millisecond // after the welcome
	lastReminder  = 2 * time.Second         // after the first

	rowFormat = "%7s  %-7s  %-32s  %7s\n"
)

var errEarly = errors.New("commands came early")

// WelcomeUser is a command that is handled at once.
type WelcomeUser struct {
	User string `json:"user"`
}

// RemindUser is a command that is sent with a delay.
type RemindUser struct {
	User  string    `json:"user"`
	Text  string    `json:"text"`
	Last  bool      `json:"last"`
	DueAt time.Time `json:"due_at"` // by Redis's clock; to measure lateness
}

// reminders handles the commands. It is safe for concurrent use.
type reminders struct {
	client redis.UniversalClient // to ask for Redis's time
	bus    *cqrs.CommandBus
	users  int
	start  time.Time
	done   chan struct{} // closed when all users have had their last reminder

	mu       sync.Mutex
	reminded map[string]bool // guarded by mu; users who have had the last reminder
	early    int             // guarded by mu; reminders that came early
}

func newReminders(client redis.UniversalClient, bus *cqrs.CommandBus, users int) *reminders {
	return &reminders{
		client:   client,
		bus:      bus,
		users:    users,
		start:    time.Now(),
		done:     make(chan struct{}),
		reminded: make(map[string]bool, users),
	}
}

func (r *reminders) handlers() []cqrs.CommandHandler {
	return []cqrs.CommandHandler{
		cqrs.NewCommandHandler("welcome_user", r.welcome),
		cqrs.NewCommandHandler("remind_user", r.remind),
	}
}

func (r *reminders) welcome(ctx context.Context, command *WelcomeUser) error {
	r.print(command.User, "Welcome!", "")
	return r.send(ctx, firstReminder, RemindUser{User: command.User, Text: "Have you verified your address?"})
}

func (r *reminders) remind(ctx context.Context, command *RemindUser) error {
	now, err := r.redisTime(ctx)
	if err != nil {
		return err
	}
	late := now.Sub(command.DueAt)
	r.print(command.User, command.Text, fmt.Sprintf("%.1f ms", late.Seconds()*1000))
	r.note(command, late)
	if command.Last {
		return nil
	}
	return r.send(ctx, lastReminder, RemindUser{User: command.User, Text: "Your account is about to expire.", Last: true})
}

// send sends a reminder that is due after a delay.
func (r *reminders) send(ctx context.Context, after time.Duration, command RemindUser) error {
	now, err := r.redisTime(ctx)
	if err != nil {
		return err
	}
	command.DueAt = now.Add(after)
	if err := r.bus.Send(delay.WithContext(ctx, delay.For(after)), command); err != nil {
		return fmt.Errorf("remind %s: %w", command.User, err)
	}
	return nil
}

func (r *reminders) redisTime(ctx context.Context) (time.Time, error) {
	now, err := r.client.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("ask Redis for the time: %w", err)
	}
	return now, nil
}

// note records a reminder. The same one may come twice.
func (r *reminders) note(command *RemindUser, late time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if late < 0 {
		r.early++
	}
	if !command.Last || r.reminded[command.User] {
		return
	}
	r.reminded[command.User] = true
	if len(r.reminded) == r.users {
		close(r.done)
	}
}

func (r *reminders) print(user, text, late string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf(rowFormat, fmt.Sprintf("%.2f s", time.Since(r.start).Seconds()), user, text, late)
}

// wait returns when all users have had their last reminder, or with an error.
func (r *reminders) wait(ctx context.Context) error {
	select {
	case <-r.done:
	case <-ctx.Done():
		return fmt.Errorf("wait for reminders: %w", context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.early > 0 {
		return fmt.Errorf("%w: %d", errEarly, r.early)
	}
	fmt.Println("\nAll reminders came, and none of them early.")
	return nil
}
