package watchcache

import (
	"fmt"
	"strconv"
	"strings"
)

// Position is a place in one numbering of revisions: what a client keeps in
// order to resume. Two positions are the same place if they are ==.
//
// Its text form is EPOCH:REVISION, or EPOCH:REVISION.PART where Part is not 0.
// Bytes of the epoch other than letters, digits, '-' and '_' are written as %XX.
// So the text holds nothing that an HTTP header, an entity tag, a URL query or a
// file name would have to quote, and two texts are equal exactly if their
// positions are. In JSON it is a string of that form.
type Position struct {
	// Epoch is the identity of the numbering; positions of different epochs
	// cannot be compared.
	Epoch string
	// Revision: everything up to it is included. 0 is "nothing yet".
	Revision uint64
	// Part counts the commits at Revision that continued it (see
	// [Commit].Continues), from 0 for the first.
	Part uint32
}

// IsZero reports whether p is the zero Position, which is no place at all.
func (p Position) IsZero() bool { return p == Position{} }

// compare orders positions of one epoch.
func (p Position) compare(revision uint64, part uint32) int {
	switch {
	case p.Revision < revision:
		return -1
	case p.Revision > revision:
		return 1
	case p.Part < part:
		return -1
	case p.Part > part:
		return 1
	}
	return 0
}

// String returns the text form.
func (p Position) String() string { return string(p.append(nil)) }

// MarshalText returns the text form. It never fails.
func (p Position) MarshalText() ([]byte, error) { return p.append(nil), nil }

func (p Position) append(b []byte) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(p.Epoch) {
		if c := p.Epoch[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	b = strconv.AppendUint(append(b, ':'), p.Revision, 10)
	if p.Part != 0 {
		b = strconv.AppendUint(append(b, '.'), uint64(p.Part), 10)
	}
	return b
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// UnmarshalText parses the text form. It accepts only what MarshalText writes;
// anything else is ErrInvalidPosition, and leaves p as it was.
func (p *Position) UnmarshalText(text []byte) error {
	parsed, err := ParsePosition(string(text))
	if err == nil {
		*p = parsed
	}
	return err
}

// ParsePosition parses the text form of a position, as UnmarshalText does.
//
// Errors: ErrInvalidPosition.
func ParsePosition(text string) (Position, error) {
	invalid := func(why string) (Position, error) {
		return Position{}, fmt.Errorf("%w: %s", ErrInvalidPosition, why)
	}
	escaped, number, ok := strings.Cut(text, ":")
	if !ok {
		return invalid("no colon")
	}
	var p Position
	var err error
	if strings.Contains(escaped, "%") {
		if p.Epoch, ok = unescape(escaped); !ok {
			return invalid("malformed escape in the epoch")
		}
	} else {
		p.Epoch = escaped
	}
	number, part, parted := strings.Cut(number, ".")
	if p.Revision, err = strconv.ParseUint(number, 10, 64); err != nil {
		return invalid("malformed revision")
	}
	if parted {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return invalid("malformed part")
		}
		p.Part = uint32(n)
	}
	if p.String() != text {
		return invalid("not in canonical form")
	}
	return p, nil
}

func unescape(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+3 > len(s) {
			return "", false
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), true
}

// mark is a position without its epoch.
type mark struct {
	revision uint64
	part     uint32
}

func (p Position) mark() mark { return mark{p.Revision, p.Part} }

func (m mark) compare(revision uint64, part uint32) int {
	return Position{Revision: m.revision, Part: m.part}.compare(revision, part)
}
