package main

import (
	"math"
	"strings"

	"github.com/watchcache/watchcache/bench/peer/all"
)

// growth is by how much each peer's figure grows when the size grows by ten, over all
// sizes of a view.
func growth(found *results) string {
	var t strings.Builder
	for _, v := range views {
		row, any := "| "+v.title+": "+v.what+" |", false
		for _, p := range all.Peers {
			factor, ok := v.growth(found, p.Name)
			if !ok {
				row += " – |"
				continue
			}
			row, any = row+" "+figure(factor)+" |", true
		}
		if any {
			t.WriteString(row + "\n")
		}
	}
	if t.Len() == 0 {
		return ""
	}
	head, rule := "| figure |", "| --- |"
	for _, p := range all.Peers {
		head, rule = head+" "+p.Name+" |", rule+" ---: |"
	}
	return head + "\n" + rule + "\n" + t.String()
}

func (v view) growth(found *results, peer string) (factor float64, ok bool) {
	var low, high cell
	for _, c := range v.cells(found) {
		if c.peer != peer || c.failing != "" || c.size == 0 || c.v == 0 {
			continue
		}
		if low.size == 0 || c.size < low.size {
			low = c
		}
		if c.size > high.size {
			high = c
		}
	}
	if low.size == high.size {
		return 0, false
	}
	return math.Pow(high.v/low.v, 1/math.Log10(float64(high.size)/float64(low.size))), true
}
