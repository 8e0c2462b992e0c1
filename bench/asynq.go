package main

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/hibiken/asynq"
)

// task is a task to enqueue, with the id that asynq would otherwise generate.
type task struct {
	*asynq.Task
	id string
}

func newTasks(n int) []task {
	list := make([]task, n)
	for i := range list {
		list[i] = task{asynq.NewTask(topic, payload(i)), watermill.NewUUID()}
	}
	return list
}

// enqueueAll enqueues as fast as possible. asynq cannot enqueue several tasks in one call.
func enqueueAll(ctx context.Context, l *lab, tasks []task, options ...asynq.Option) error {
	client := asynq.NewClientFromRedisClient(l.client())
	return inCalls(ctx, 32, 1, tasks, func(call []task) error {
		return enqueue(ctx, client, call[0], options...)
	})
}

func enqueue(ctx context.Context, client *asynq.Client, t task, options ...asynq.Option) error {
	_, err := client.EnqueueContext(ctx, t.Task, append(options[:len(options):len(options)], asynq.TaskID(t.id))...)
	return err
}

func scheduleAsynq(ctx context.Context, l *lab, n int) error {
	return enqueueAll(ctx, l, newTasks(n), asynq.ProcessIn(24*time.Hour))
}
