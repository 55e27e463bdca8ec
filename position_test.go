package watchcache

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"pgregory.net/rapid"
)

func drawAnyPosition(t *rapid.T) Position {
	return Position{
		Epoch:    rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "epoch"),
		Revision: rapid.Uint64().Draw(t, "revision"),
		Part:     rapid.Uint32().Draw(t, "part"),
	}
}

func TestPositionTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawAnyPosition(t)
		text, err := p.MarshalText()
		if err != nil || string(text) != p.String() {
			t.Fatalf("%#v: MarshalText gives %q, %v, want String's %q", p, text, err, p.String())
		}
		var again Position
		if err := again.UnmarshalText(text); err != nil || again != p {
			t.Fatalf("%q parses as %#v, %v, want %#v", text, again, err, p)
		}
	})
}

func TestPositionTextsAreEqualExactlyIfPositionsAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, q := drawAnyPosition(t), drawAnyPosition(t)
		if rapid.Bool().Draw(t, "same epoch") {
			q.Epoch = p.Epoch
		}
		if (p == q) != (p.String() == q.String()) {
			t.Fatalf("%#v and %#v are written %q and %q: want equal texts exactly for equal positions", p, q, p, q)
		}
	})
}

func TestPositionJSONIsItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := map[string]Position{"at": drawAnyPosition(t)}
		data, err := json.Marshal(in)
		if want := `{"at":"` + in["at"].String() + `"}`; err != nil || string(data) != want {
			t.Fatalf("JSON is %s, %v, want %s", data, err, want)
		}
		var out map[string]Position
		if err := json.Unmarshal(data, &out); err != nil || out["at"] != in["at"] {
			t.Fatalf("%s parses as %#v, %v, want %#v", data, out, err, in)
		}
	})
}

func TestPositionTextNeedsNoQuoting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawAnyPosition(t).String()
		for _, c := range []byte(text) {
			letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
			if digit := '0' <= c && c <= '9'; !letter && !digit && c != '-' && c != '_' && c != '%' && c != ':' && c != '.' {
				t.Fatalf("%q has the byte %q, want letters, digits and -_%%:. only", text, c)
			}
		}
	})
}

func TestPositionTravelsInAHeader(t *testing.T) {
	p := Position{Epoch: "a b\r\nSet-Cookie: x\x00ü:,;\"", Revision: math.MaxUint64, Part: math.MaxUint32}
	server := httptest.NewRecorder()
	http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Position", p.String())
	}).ServeHTTP(server, httptest.NewRequest(http.MethodGet, "/", nil))
	again, err := ParsePosition(server.Result().Header.Get("Position"))
	if err != nil || again != p {
		t.Errorf("out of the header came %#v, %v, want %#v", again, err, p)
	}
}

func TestPositionTextIsCanonical(t *testing.T) {
	for text, want := range map[string]Position{
		":0":                              {},
		"e:7":                             {Epoch: "e", Revision: 7},
		"e:7.1":                           {Epoch: "e", Revision: 7, Part: 1},
		"A-z_9:1":                         {Epoch: "A-z_9", Revision: 1},
		"a%2Fb%3A:1":                      {Epoch: "a/b:", Revision: 1},
		"%00%FF:18446744073709551615":     {Epoch: "\x00\xff", Revision: math.MaxUint64},
		"e:0.4294967295":                  {Epoch: "e", Part: math.MaxUint32},
		"%25:1":                           {Epoch: "%", Revision: 1},
		"e%2E1:18446744073709551615.1000": {Epoch: "e.1", Revision: math.MaxUint64, Part: 1000},
	} {
		if p, err := ParsePosition(text); err != nil || p != want {
			t.Errorf("ParsePosition(%q) = %#v, %v, want %#v", text, p, err, want)
		}
		if got := want.String(); got != text {
			t.Errorf("%#v is written %q, want %q", want, got, text)
		}
	}
}

func TestPositionRejectsWhatItWouldNotWrite(t *testing.T) {
	for _, text := range []string{
		"", ":", "e", "e:", "7", "e:x", "e:-1", "e:+1", "e: 1", " e:1", "e:1 ", "e:1\n", "e:01", "e:00", "e:1_0", "e:0x1",
		"e:18446744073709551616", "e:1.", "e:1.0", "e:1.01", "e:1.4294967296", "e:1.-1", "e:1.1.1", "e:1:1",
		"a b:1", "a/b:1", "ü:1", "\xff:1", "a\x00:1", "%:1", "%2:1", "%2f:1", "%ZZ:1", "%41:1", "%2d:1", "%+1:1", "e:%31",
	} {
		p := Position{Epoch: "kept", Revision: 3}
		if err := p.UnmarshalText([]byte(text)); !errors.Is(err, ErrInvalidPosition) || p != (Position{Epoch: "kept", Revision: 3}) {
			t.Errorf("UnmarshalText(%q): %v and %#v, want ErrInvalidPosition and no change", text, err, p)
		}
	}
	var p Position
	for _, data := range []string{`7`, `{}`, `["e:1"]`, `"e"`, `true`} {
		if err := json.Unmarshal([]byte(data), &p); err == nil || p != (Position{}) {
			t.Errorf("JSON %s: %v and %#v, want an error and no change", data, err, p)
		}
	}
}

func TestPositionIsZeroOnlyWhenNothingIsSet(t *testing.T) {
	for p, want := range map[Position]bool{{}: true, {Epoch: "e"}: false, {Revision: 1}: false, {Part: 1}: false} {
		if p.IsZero() != want {
			t.Errorf("%#v.IsZero() is %v, want %v", p, !want, want)
		}
	}
}
