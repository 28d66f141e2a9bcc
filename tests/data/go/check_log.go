// What Go's own libraries for signed notes and transparency logs (golang.org/x/mod/sumdb) say of a ledger:
// JSON on standard input, one line on standard output, and a message with exit code 1 where they disagree.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type input struct {
	Vkey, Note, Text string
	Envelopes        []string
	Roots            map[int64]tlog.Hash
	Inclusions       []struct {
		Size, Index int64
		Proof       []tlog.Hash
	}
	Consistencies []struct {
		Old, New int64
		Proof    []tlog.Hash
	}
}

func must(err error, what string, args ...interface{}) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", fmt.Sprintf(what, args...), err)
		os.Exit(1)
	}
}

func main() {
	var in input
	must(json.NewDecoder(os.Stdin).Decode(&in), "input")

	verifier, err := note.NewVerifier(in.Vkey)
	must(err, "vkey")
	opened, err := note.Open([]byte(in.Note), note.VerifierList(verifier))
	must(err, "note")
	if opened.Text != in.Text || len(opened.Sigs) != 1 || len(opened.UnverifiedSigs) != 0 {
		must(fmt.Errorf("%q with %d signatures", opened.Text, len(opened.Sigs)), "note")
	}

	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(indexes))
		for i, at := range indexes {
			found[i] = stored[at]
		}
		return found, nil
	})
	for i, envelope := range in.Envelopes {
		hashes, err := tlog.StoredHashes(int64(i), []byte(envelope), reader)
		must(err, "leaf %d", i)
		stored = append(stored, hashes...)
	}
	for size, root := range in.Roots {
		computed, err := tlog.TreeHash(size, reader)
		must(err, "root of %d", size)
		if computed != root {
			must(fmt.Errorf("%v is not %v", root, computed), "root of %d", size)
		}
	}
	for _, of := range in.Inclusions {
		leaf := tlog.RecordHash([]byte(in.Envelopes[of.Index]))
		must(tlog.CheckRecord(of.Proof, of.Size, in.Roots[of.Size], of.Index, leaf), "event %d in %d", of.Index, of.Size)
	}
	for _, of := range in.Consistencies {
		must(tlog.CheckTree(of.Proof, of.New, in.Roots[of.New], of.Old, in.Roots[of.Old]), "%d in %d", of.Old, of.New)
	}
	fmt.Printf("%d events, %d roots, %d inclusions, %d consistencies\n",
		len(in.Envelopes), len(in.Roots), len(in.Inclusions), len(in.Consistencies))
}
