package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/watchcache/watchcache/bench/peer"
	"github.com/watchcache/watchcache/bench/peer/all"
)

// present makes README.md and the charts of what raw.txt says.
func present(dir string) error {
	raw, err := os.Open(filepath.Join(dir, rawName))
	if err != nil {
		return err
	}
	defer raw.Close()
	found, err := parse(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", rawName, err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# Results\n\nWritten by `go run ./run`: medians of the rounds in [%s](%s). Compare within a table, not with another machine.\n\n", rawName, rawName)
	for _, line := range found.head {
		fmt.Fprintf(&text, "- %s\n", line)
	}
	fmt.Fprint(&text, "\n| peer | what it is | cannot |\n| --- | --- | --- |\n")
	for _, p := range all.Peers {
		fmt.Fprintf(&text, "| %s | %s | %s |\n", p.Name, p.What, cannot(p))
	}
	fmt.Fprint(&text, "\nA dash: the peer cannot do the case, or not at that size (NATS and watermill are left out where they would take minutes). Ended, lost: the peer ended so many of the case's watchers, or did not give them so many of the events, in the worst round; a figure would be of less work. A p99 is of 1,000 samples or more, a p99.9 of 10,000.\n")
	if t := heldTo(found); t != "" {
		fmt.Fprintf(&text, "\n## What it is held to\n\nThe peer's figure over ours, where it says at least; else our own over our own, or over the peer's:\n\n%s", t)
	}
	for _, v := range views {
		cells := v.cells(found)
		if len(cells) == 0 {
			continue
		}
		fmt.Fprintf(&text, "\n## %s\n\n%s\n%s", v.title, upperFirst(v.what)+":\n", table(v, cells, v.controls(found)))
		if v.by == "" {
			continue
		}
		if drawing := draw(v, slices.DeleteFunc(cells, func(c cell) bool { return c.failing != "" })); drawing != "" {
			name := v.file + ".svg"
			if err := os.WriteFile(filepath.Join(dir, name), []byte(drawing), 0o666); err != nil {
				return err
			}
			fmt.Fprintf(&text, "\n![%s](%s)\n", v.title, name)
		}
	}
	if t := growth(found); t != "" {
		fmt.Fprintf(&text, "\n## Growth\n\nBy how much a figure grows when the size (the tables' columns) grows by ten:\n\n%s", t)
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(text.String()), 0o666)
}

func cannot(p peer.Peer) string {
	var all []string
	for c, why := range p.Cannot {
		all = append(all, fmt.Sprintf("%s: %s", c, why))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// upperFirst begins a sentence. A unit stays as it is: a capital would be another.
func upperFirst(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if word == "ns" || word == "µs" {
		return s
	}
	first, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + s[n:]
}

// table has a row for each peer, and one for its control if it has any, and a column for
// each size.
func table(v view, cells, controls []cell) string {
	var sizes []int
	for _, c := range slices.Concat(cells, controls) {
		if !slices.Contains(sizes, c.size) {
			sizes = append(sizes, c.size)
		}
	}
	slices.Sort(sizes)
	var t strings.Builder
	t.WriteString("| peer |")
	for _, n := range sizes {
		if v.by == "" {
			t.WriteString(" " + v.what + " |")
		} else {
			fmt.Fprintf(&t, " %s %s |", thousands(n), v.by)
		}
	}
	t.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(sizes)) + "\n")
	for _, p := range all.Peers {
		t.WriteString(row(p.Name, p.Name, sizes, cells))
		if slices.ContainsFunc(controls, func(c cell) bool { return c.peer == p.Name }) {
			t.WriteString(row(p.Name+", control", p.Name, sizes, controls))
		}
	}
	return t.String()
}

func row(title, peer string, sizes []int, cells []cell) string {
	text := "| " + title + " |"
	for _, n := range sizes {
		at := slices.IndexFunc(cells, func(c cell) bool { return c.peer == peer && c.size == n })
		switch {
		case at < 0:
			text += " – |"
		case cells[at].failing != "":
			text += " " + cells[at].failing + " |"
		default:
			text += " " + figure(cells[at].v) + " |"
		}
	}
	return text + "\n"
}

// figure writes three digits that count, and all before the point.
func figure(x float64) string {
	switch {
	case x >= 100 || x == 0:
		return thousands(int(x + 0.5))
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	case x >= 0.01:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.4f", x)
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
