//go:build !invariants

// Package invariant checks what must always hold, in builds with the tag
// "invariants" only. Guard a check that costs something by Enabled, so that the
// compiler removes it from all other builds.
package invariant

// Enabled tells whether checks are compiled in.
const Enabled = false

// Check panics with the message if ok is false, in builds with invariants.
func Check(bool, string, ...any) {}
