package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

const isc = `Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, provided that the above copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.
`

func TestIdentify(t *testing.T) {
	for name, row := range map[string]struct {
		files map[string]string
		want  string
		err   string
	}{
		"known":             {map[string]string{"LICENSE.txt": isc, "main.go": "package x"}, "ISC", ""},
		"British":           {map[string]string{"licence": isc}, "ISC", ""},
		"none":              {map[string]string{"main.go": "package x"}, "", "no file with a licence"},
		"another text":      {map[string]string{"COPYING": "Do as you are told."}, "", "look at it"},
		"much beside it":    {map[string]string{"LICENSE": isc + strings.Repeat("But not on a Sunday, and never in the rain. ", 200)}, "", "look at it"},
		"in another folder": {map[string]string{"vendor/LICENSE": isc}, "", "no file with a licence"},
	} {
		dir := fstest.MapFS{}
		for file, text := range row.files {
			dir[file] = &fstest.MapFile{Data: []byte(text)}
		}
		ids, err := identify(dir)
		if got := strings.Join(ids, ","); got != row.want || row.err == "" && err != nil || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, row.want, row.err)
		}
	}
}
