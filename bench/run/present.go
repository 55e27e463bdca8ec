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
	fmt.Fprint(&text, "\nA dash: the peer cannot do the case, or not at that size (NATS and watermill are left out where they would take minutes).\n")
	for _, v := range views {
		cells := v.cells(found)
		if len(cells) == 0 {
			continue
		}
		fmt.Fprintf(&text, "\n## %s\n\n%s\n%s", v.title, upperFirst(v.what)+":\n", table(v, cells))
		if v.by == "" {
			continue
		}
		if drawing := draw(v, cells); drawing != "" {
			name := v.file + ".svg"
			if err := os.WriteFile(filepath.Join(dir, name), []byte(drawing), 0o666); err != nil {
				return err
			}
			fmt.Fprintf(&text, "\n![%s](%s)\n", v.title, name)
		}
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

// table has a row for each peer and a column for each size.
func table(v view, cells []cell) string {
	var sizes []int
	value := map[string]map[int]float64{}
	for _, c := range cells {
		if !slices.Contains(sizes, c.size) {
			sizes = append(sizes, c.size)
		}
		if value[c.peer] == nil {
			value[c.peer] = map[int]float64{}
		}
		value[c.peer][c.size] = c.v
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
		fmt.Fprintf(&t, "| %s |", p.Name)
		for _, n := range sizes {
			if x, ok := value[p.Name][n]; ok {
				t.WriteString(" " + figure(x) + " |")
			} else {
				t.WriteString(" – |")
			}
		}
		t.WriteString("\n")
	}
	return t.String()
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
