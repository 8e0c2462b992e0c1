package publish

import (
	"errors"
	"fmt"
	"slices"
)

// PartialError says that only some of a call's messages are stored.
type PartialError struct {
	Stored  int // of the Total messages
	Total   int
	Missing []int // indexes of those that are not stored or, with ErrOutcomeUnknown, may not be
	Err     error
}

func (e *PartialError) Error() string {
	return fmt.Sprintf("only %d of %d messages are stored: %v", e.Stored, e.Total, e.Err)
}

func (e *PartialError) Unwrap() error { return e.Err }

// outcome returns the error of a call. stored is how many messages of each share are
// stored, counted from its first.
func outcome(shares []share, stored []int, errs []error) error {
	err := errors.Join(errs...)
	switch {
	case err == nil:
		return nil
	case len(errs) == 1:
		err = errs[0]
	}
	partial := PartialError{Err: err}
	for i, s := range shares {
		partial.Stored += stored[i]
		partial.Total += len(s.messages)
		for n := stored[i]; n < len(s.messages); n++ {
			if s.indexes == nil {
				partial.Missing = append(partial.Missing, n)
			} else {
				partial.Missing = append(partial.Missing, s.indexes[n])
			}
		}
	}
	if partial.Stored == 0 || len(partial.Missing) == 0 {
		return partial.Err
	}
	slices.Sort(partial.Missing)
	return &partial
}
