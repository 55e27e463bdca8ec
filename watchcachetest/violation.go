package watchcachetest

import (
	"fmt"
	"strings"
)

// Violation is a promise of the contract that a stream, or what was written, has
// broken. It is what [Checker.Err] returns; find it with [errors.As].
type Violation struct {
	// Watcher is the name that [Checker.Watcher] was given; empty for a fault of
	// the writing side.
	Watcher string
	// Contract is the line of the contract, in the comment of package watchcache.
	Contract int
	Why      string   // what is wrong
	Expected string   // what had to come next
	Got      string   // what came
	Last     []string // the last that was taken before, oldest first

	// heals: it is one only if the checker is not told more.
	heals bool
}

var promises = map[int]string{
	1:  "order, once, no gaps",
	2:  "atomic commits",
	3:  "snapshot, then stream",
	4:  "selection is one rule everywhere",
	5:  "every stream says why it ended",
	6:  "expired is honest",
	12: "all or nothing in",
	13: "relist without drama",
	14: "bookmarks are true",
}

// Error returns all of it, in a few lines.
func (v *Violation) Error() string {
	var b strings.Builder
	who := "the writing side"
	if v.Watcher != "" {
		who = fmt.Sprintf("watcher %q", v.Watcher)
	}
	fmt.Fprintf(&b, "%s broke contract %d (%s): %s", who, v.Contract, promises[v.Contract], v.Why)
	fmt.Fprintf(&b, "\n\texpected: %s\n\tgot:      %s", v.Expected, v.Got)
	if v.Watcher != "" {
		last := "nothing"
		if len(v.Last) > 0 {
			last = strings.Join(v.Last, "; ")
		}
		fmt.Fprintf(&b, "\n\tbefore:   %s", last)
	}
	return b.String()
}
