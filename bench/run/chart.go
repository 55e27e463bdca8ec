package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/watchcache/watchcache/bench/peer/all"
)

// The picture, in its own units. Both axes are logarithmic; a size of 0 stands a
// decade before the smallest other.
const (
	width, height = 760, 420
	left, right   = 70, 170 // for the numbers, and for the peers' names
	top, bottom   = 40, 50
)

// colours tell the peers apart in light and in dark.
var colours = []string{"#0b7285", "#e8590c", "#f08c00", "#5c940d", "#7048e8", "#1971c2", "#c2255c", "#868e96"}

const style = `<style>
text { font: 12px system-ui, sans-serif; fill: #343a40 }
.title { font-size: 14px; font-weight: 600 }
.grid { stroke: #ced4da; stroke-width: 1 }
.ground { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #dee2e6 }
.grid { stroke: #495057 }
.ground { fill: #0d1117 }
}
</style>
`

// axis maps values to places, by their logarithms.
type axis struct{ min, max, from, to float64 }

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-math.Log10(a.min))/(math.Log10(a.max)-math.Log10(a.min))*(a.to-a.from)
}

// decades returns the axis that spans whole decades around the values.
func decades(values []float64, from, to float64) axis {
	low, high := slices.Min(values), slices.Max(values)
	a := axis{math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high))), from, to}
	if a.min == a.max {
		a.max *= 10
	}
	return a
}

// draw returns a chart as SVG: a line for each peer. It is empty where there is
// nothing to draw: one size, or zeros only.
func draw(v view, cells []cell) string {
	zero, smallest := false, math.Inf(1)
	for _, c := range cells {
		if c.size == 0 {
			zero = true
		} else {
			smallest = min(smallest, float64(c.size))
		}
	}
	place := func(size int) float64 {
		if size == 0 {
			return smallest / 10
		}
		return float64(size)
	}
	var sizes, values []float64
	for _, c := range cells {
		if c.v > 0 {
			sizes, values = append(sizes, place(c.size)), append(values, c.v)
		}
	}
	if len(values) == 0 || slices.Min(sizes) == slices.Max(sizes) {
		return ""
	}
	x, y := decades(sizes, left, width-right), decades(values, height-bottom, top)
	var s strings.Builder
	fmt.Fprintf(&s, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", width, height, html.EscapeString(v.title))
	s.WriteString(style)
	fmt.Fprintf(&s, "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n<text class=\"title\" x=\"%d\" y=\"22\">%s: %s</text>\n", width, height, left, html.EscapeString(v.title), html.EscapeString(v.what))
	for d := x.min; d <= x.max*1.01; d *= 10 {
		label := thousands(int(d + 0.5))
		if zero && d < smallest {
			label = "0"
		}
		fmt.Fprintf(&s, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x.at(d), x.at(d), top, height-bottom, x.at(d), height-bottom+18, label)
	}
	for d := y.min; d <= y.max*1.01; d *= 10 {
		fmt.Fprintf(&s, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", left, width-right, y.at(d), y.at(d), left-8, y.at(d)+4, short(d))
	}
	fmt.Fprintf(&s, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", (left+width-right)/2, height-12, v.by)
	lines(&s, cells, x, y, place)
	s.WriteString("</svg>\n")
	return s.String()
}

// lines draws the peers, and their names at the ends of their lines, apart from
// one another.
func lines(s *strings.Builder, cells []cell, x, y axis, place func(int) float64) {
	type label struct {
		name, colour string
		at           float64
	}
	var labels []label
	for i, p := range all.Peers {
		var points []string
		var end float64
		for _, c := range cells {
			if c.peer != p.Name || c.v <= 0 {
				continue
			}
			end = y.at(c.v)
			points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(place(c.size)), end))
		}
		if len(points) == 0 {
			continue
		}
		colour, weight := colours[i%len(colours)], 1.5
		if i == 0 {
			weight = 3
		}
		fmt.Fprintf(s, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" points=\"%s\"/>\n", colour, weight, strings.Join(points, " "))
		for _, point := range points {
			px, py, _ := strings.Cut(point, ",")
			fmt.Fprintf(s, "<circle fill=\"%s\" r=\"3\" cx=\"%s\" cy=\"%s\"/>\n", colour, px, py)
		}
		labels = append(labels, label{p.Name, colour, end})
	}
	slices.SortFunc(labels, func(a, b label) int { return int(math.Copysign(1, a.at-b.at)) })
	last := math.Inf(-1)
	for _, l := range labels {
		last = max(l.at, last+15)
		fmt.Fprintf(s, "<circle fill=\"%s\" r=\"4\" cx=\"%d\" cy=\"%.1f\"/><text x=\"%d\" y=\"%.1f\">%s</text>\n", l.colour, width-right+14, last, width-right+24, last+4, l.name)
	}
}

// short writes a power of ten.
func short(d float64) string {
	switch {
	case d >= 1e6:
		return fmt.Sprintf("%g M", d/1e6)
	case d >= 1000:
		return fmt.Sprintf("%g k", d/1000)
	}
	return fmt.Sprintf("%g", math.Round(d*1e9)/1e9)
}
