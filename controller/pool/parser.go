package pool

import (
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// DefaultParserSize is how many annotation texts a Parser remembers: twice the
// 10,000 functions that a replica must carry (design section 6), so that a
// change of every function's configuration does not push the present ones out.
const DefaultParserSize = 20_000

// Parser reads function annotations, each distinct text once. Safe for
// concurrent use; its memory is bounded by its size and fn.MaxJSONBytes.
type Parser struct {
	texts *lru.Cache[string, parsed]
}

type parsed struct {
	function *skipperpb.Function
	err      error
}

// NewParser returns a parser that remembers size texts; below 1 means 1.
func NewParser(size int) *Parser {
	c, err := lru.New[string, parsed](max(size, 1))
	if err != nil { // only for a size below 1
		panic(fmt.Sprintf("make function cache: %v", err))
	}
	return &Parser{texts: c}
}

// Parse is fn.Parse. The function is shared between callers and read-only.
// Texts that are too large are refused without being remembered.
func (p *Parser) Parse(text string) (*skipperpb.Function, error) {
	if len(text) > fn.MaxJSONBytes {
		return nil, fn.ErrTooLarge
	}
	if v, ok := p.texts.Get(text); ok {
		return v.function, v.err
	}
	f, err := fn.Parse([]byte(text))
	p.texts.Add(text, parsed{f, err})
	return f, err
}
