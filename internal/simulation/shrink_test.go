package simulation_test

import "slices"

// shrink leaves out steps for as long as the plan still fails: at first half of
// them at a time, in the end one. At most so many tries.
func shrink(p plan, tries int, fails func(plan) bool) plan {
	for size := max(1, len(p.steps)/2); ; size = max(1, size/2) {
		removed := false
		for at := 0; at < len(p.steps); {
			if tries == 0 {
				return p
			}
			tries--
			smaller := plan{p.config, slices.Delete(slices.Clone(p.steps), at, min(at+size, len(p.steps)))}
			if fails(smaller) {
				p, removed = smaller, true
				continue
			}
			at += size
		}
		if size == 1 && !removed {
			return p
		}
	}
}
