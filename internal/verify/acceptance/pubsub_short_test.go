//go:build !stress

package acceptance

// allInFull is whether Watermill's suite runs in full in all its forms, or only in TestPubSub.
const allInFull = false
