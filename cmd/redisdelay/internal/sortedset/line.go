package sortedset

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// Options say what messages the jobs of a set become.
type Options struct {
	Keyed    bool              // the member is the message's key (SetKey)
	Metadata map[string]string // of each message, besides that of the job
}

var errNoKey = fmt.Errorf("it cannot be a message key: want text of 1 to %d bytes", redisdelay.MaxKeyBytes)

// Check adds what keeps jobs from becoming messages with these options.
func (o Options) Check(jobs []Job) {
	for i := range jobs {
		job := &jobs[i]
		if o.Keyed && (job.Member == "" || len(job.Member) > redisdelay.MaxKeyBytes || !utf8.ValidString(job.Member)) {
			job.fail(errNoKey)
		}
	}
}

// line is what admin.Import reads.
type line struct {
	ID        string            `json:"id"`
	Key       string            `json:"key,omitempty"`
	Due       int64             `json:"due"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Payload   *string           `json:"payload,omitempty"`
	Payload64 []byte            `json:"payload64,omitempty"`
}

// Lines are jobs of a set for admin.Import. None of them may have a Problem.
func (s Set) Lines(jobs []Job, o Options) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, job := range jobs {
		if job.Problem != nil {
			return nil, errors.Join(fmt.Errorf("member %q", job.Member), job.Problem)
		}
		if err := encoder.Encode(s.line(job, o)); err != nil {
			return nil, fmt.Errorf("member %q: %w", job.Member, err)
		}
	}
	return text.Bytes(), nil
}

func (s Set) line(job Job, o Options) line {
	l := line{ID: s.id(job), Due: job.Due}
	if len(o.Metadata)+len(job.Metadata) > 0 || o.Keyed {
		l.Metadata = map[string]string{}
		maps.Copy(l.Metadata, o.Metadata)
		maps.Copy(l.Metadata, job.Metadata)
	}
	if o.Keyed {
		l.Key = job.Member
		l.Metadata[redisdelay.KeyMetadata] = job.Member
	}
	if utf8.Valid(job.Payload) {
		payload := string(job.Payload)
		l.Payload = &payload
	} else {
		l.Payload64 = job.Payload
	}
	return l
}

// IDs are the ids that the message of a job may have: the one that it gets with these options, and then the one with the
// other choice of Keyed, with which it may have been imported before.
func (s Set) IDs(job Job, o Options) []string {
	plain := s.id(job)
	keyed := plain + ":" + job.Member
	if o.Keyed {
		return []string{keyed, plain}
	}
	return []string{plain, keyed}
}

// id is the id of a job's message: a ULID that begins with the due time, and is the same each time the job is read from
// a set of this name, whatever form its score is written in.
func (s Set) id(job Job) string {
	var id ulid.ULID
	_ = id.SetTime(uint64(job.Due)) //nolint:gosec // due has checked it
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", s.Key, job.Member, job.Due))
	_ = id.SetEntropy(sum[:10]) // of the right length
	return id.String()
}
