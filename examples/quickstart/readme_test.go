package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeShowsExactlyThis: the README's code is this program.
func TestReadmeShowsExactlyThis(t *testing.T) {
	code, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(code)+"```\n") {
		t.Error("README.md does not show examples/quickstart/main.go as it is")
	}
}
