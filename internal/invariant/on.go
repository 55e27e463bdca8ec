//go:build invariants

package invariant

import "fmt"

// Enabled tells whether checks are compiled in.
const Enabled = true

// Check panics with the message if ok is false.
func Check(ok bool, format string, args ...any) {
	if !ok {
		panic("watchcache: invariant broken: " + fmt.Sprintf(format, args...))
	}
}
