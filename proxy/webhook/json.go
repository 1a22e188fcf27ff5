package webhook

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// step is one component of a path into a JSON document: a member's name, or each element of an array.
type step struct {
	name string
	each bool
}

// maxSteps bounds a path, so that the scanner keeps its notes on the stack.
const maxSteps = 16

// maxFound bounds the values that one path can lead to: a body of any size may have millions of elements.
const maxFound = 1 << 16

// jsonValue is a value that a path led to. Text is a part of the document, undecoded: a string without its quotes, a
// number's digits, an object or array with its brackets. The zero value marks an array element that has no such value.
type jsonValue struct {
	kind byte // '"', '0', '{', '[', 't' (true, false, null)
	text []byte
}

// find returns what path leads to in doc, in document order, and whether doc as a whole is valid JSON. Of duplicate
// members the last one counts, on every level, as in the parsers of the applications behind the proxy. (More than maxFound
// values are as good as none.) One forward pass
// without recursion and without a tree: bodies have megabytes, nesting has no limit, and this runs on every delivery.
func find(doc []byte, path []step) (found []jsonValue, valid bool) {
	var (
		small    [4]uint64 // one bit per level of nesting: is it an object?
		stack    = small[:]
		depth    int
		object   bool          // the innermost container is an object
		matched  int           // how many steps of path the open containers match
		base     [maxSteps]int // len(found) when the container of each matched step was entered
		on       bool          // the next value is the one that path[matched] names
		capture  = -1          // depth of the container whose text is being captured
		captured int           // where it begins
		start    int
	)
	i := 0
	if len(doc) >= 3 && doc[0] == 0xEF && doc[1] == 0xBB && doc[2] == 0xBF {
		i = 3 // a byte order mark is no JSON, but senders write it and applications skip it
	}
	last := len(path) - 1

value:
	if i = space(doc, i); i >= len(doc) {
		return nil, false
	}
	start = i
	switch c := doc[i]; c {
	case '{', '[':
		if on {
			if matched == last {
				capture, captured = depth, i
				found = append(found, jsonValue{kind: c})
			} else {
				matched++
				base[matched] = len(found)
			}
			on = false
		}
		if depth>>6 == len(stack) {
			stack = append(stack, 0)
		}
		object = c == '{'
		if object {
			stack[depth>>6] |= 1 << (depth & 63)
		} else {
			stack[depth>>6] &^= 1 << (depth & 63)
		}
		depth++
		if i = space(doc, i+1); i >= len(doc) {
			return nil, false
		}
		if doc[i] == c+2 { // '}' and ']' are two after their opening brackets
			goto closing
		}
		if object {
			goto member
		}
		goto element
	case '"':
		if i = plain(doc, i+1); i >= len(doc) || doc[i] != '"' {
			i = endOfString(doc, i)
		}
		i++ // past the quote; 0 where there was none
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		i = endOfNumber(doc, i)
	default:
		i = endOfWord(doc, i)
	}
	if i <= 0 {
		return nil, false
	}
	if on {
		on = false
		if matched == last {
			found = append(found, scalar(doc[start:i]))
		} else if path[matched].each { // the path goes on, but a scalar has nothing inside
			found = append(found, jsonValue{})
		}
	}

after:
	i = space(doc, i)
	if depth == 0 {
		return found, i == len(doc)
	}
	if i >= len(doc) {
		return nil, false
	}
	if doc[i] == ',' {
		i++
		if object {
			goto member
		}
		goto element
	}

closing:
	if object && doc[i] != '}' || !object && doc[i] != ']' {
		return nil, false
	}
	i++
	if depth == matched+1 && matched > 0 {
		matched--
		if path[matched].each && len(found) == base[matched+1] {
			found = append(found, jsonValue{})
		}
	}
	depth--
	if depth == capture {
		found[len(found)-1].text = doc[captured:i]
		capture = -1
	}
	object = depth > 0 && stack[(depth-1)>>6]&(1<<((depth-1)&63)) != 0
	goto after

member:
	if i = space(doc, i); i >= len(doc) || doc[i] != '"' {
		return nil, false
	}
	start = i + 1
	if i = plain(doc, start); i >= len(doc) || doc[i] != '"' {
		if i = endOfString(doc, i); i < 0 {
			return nil, false
		}
	}
	if depth == matched+1 && !path[matched].each && is(doc[start:i], path[matched].name) {
		on = true
		found = found[:base[matched]] // whatever an earlier member of this name had
	}
	if i = space(doc, i+1); i >= len(doc) || doc[i] != ':' {
		return nil, false
	}
	if i++; i < len(doc) && doc[i] == ' ' {
		i++ // the one blank that most writers put here
	}
	goto value

element:
	if len(found) > maxFound {
		return nil, false
	}
	on = depth == matched+1 && path[matched].each
	goto value
}

// scalar is the value of a string, number or word that stands in a document as text.
func scalar(text []byte) jsonValue {
	switch c := text[0]; {
	case c == '"':
		return jsonValue{'"', text[1 : len(text)-1]}
	case c == '-' || c-'0' <= 9:
		return jsonValue{'0', text}
	}
	return jsonValue{'t', text}
}

// space is skipSpace, inlined where there mostly is none.
func space(doc []byte, i int) int {
	if i < len(doc) && doc[i] <= ' ' {
		return skipSpace(doc, i)
	}
	return i
}

// skipSpace returns the index of the first byte from i on that is not white space. Pretty-printed bodies are indented
// by runs of blanks: those are skipped eight at a time.
//
//go:noinline
func skipSpace(doc []byte, i int) int {
	for i < len(doc) && doc[i] <= ' ' {
		if c := doc[i]; c != '\n' && c != ' ' && c != '\r' && c != '\t' {
			break
		}
		for i++; i+8 <= len(doc); i += 8 {
			if x := binary.LittleEndian.Uint64(doc[i:]) ^ (ones * ' '); x != 0 {
				i += bits.TrailingZeros64(x) >> 3
				break
			}
		}
	}
	return i
}

const ones = 0x0101010101010101

// special marks, by their highest bit, the bytes of x that are a quote, a backslash or a control character. The lowest
// mark is always right; above it there can be wrong ones, because a subtraction borrows from the next byte. (Flipping
// bit 1 swaps quote and blank, after which quote and control characters are all those below '!'.)
func special(x uint64) uint64 {
	quote, slash := x^(ones*2), x^(ones*'\\')
	return ((quote-ones*'!')&^x | (slash-ones)&^slash) & (ones << 7)
}

// plain returns the index of the first special byte from i on, or one of the last seven.
func plain(doc []byte, i int) int {
	for ; i+8 <= len(doc); i += 8 {
		if m := special(binary.LittleEndian.Uint64(doc[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	return i
}

// endOfString returns the index of the quote that ends the string of whose content i is a part, -1 if there is none or
// the content is not valid.
func endOfString(doc []byte, i int) int {
	for {
		if i = plain(doc, i); i >= len(doc) {
			return -1
		}
		switch c := doc[i]; {
		case c == '"':
			return i
		case c == '\\':
			if i = endOfEscape(doc, i); i < 0 {
				return -1
			}
		case c < ' ':
			return -1
		default: // in the last seven bytes
			i++
		}
	}
}

// endOfEscape returns the index after the escape sequence at i, -1 if it is none.
func endOfEscape(doc []byte, i int) int {
	if i+1 >= len(doc) {
		return -1
	}
	switch doc[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		if i+6 <= len(doc) && hex4(doc[i+2:]) >= 0 {
			return i + 6
		}
	}
	return -1
}

// endOfNumber returns the index after the number at i, -1 if it is not one (RFC 8259, section 6).
func endOfNumber(doc []byte, i int) int {
	if doc[i] == '-' {
		i++
	}
	from := i
	i = digits(doc, i)
	if i == from || doc[from] == '0' && i > from+1 {
		return -1
	}
	if i < len(doc) && doc[i] == '.' {
		from = i + 1
		if i = digits(doc, from); i == from {
			return -1
		}
	}
	if i < len(doc) && doc[i]|0x20 == 'e' {
		i++
		if i < len(doc) && (doc[i] == '+' || doc[i] == '-') {
			i++
		}
		from = i
		if i = digits(doc, from); i == from {
			return -1
		}
	}
	return i
}

func digits(doc []byte, i int) int {
	for i < len(doc) && doc[i]-'0' <= 9 {
		i++
	}
	return i
}

// endOfWord returns the index after true, false or null at i, -1 if there is none of them.
func endOfWord(doc []byte, i int) int {
	word := "null"
	if doc[i] == 't' {
		word = "true"
	} else if doc[i] == 'f' {
		word = "false"
	}
	if len(doc)-i < len(word) || string(doc[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

func is(raw []byte, name string) bool {
	if string(raw) == name {
		return true
	}
	return bytes.IndexByte(raw, '\\') >= 0 && unescape(raw) == name
}

// unescape decodes a JSON string's content. Unlike encoding/json it makes no two strings equal: bytes that are not UTF-8
// stay as they are, and half a surrogate pair becomes its own (invalid) three bytes instead of U+FFFD.
func unescape(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		switch c = raw[i]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(raw[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				if i+6 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
					if pair := utf16.DecodeRune(r, hex4(raw[i+3:])); pair != utf8.RuneError {
						out = utf8.AppendRune(out, pair)
						i += 6
						continue
					}
				}
				out = append(out, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
				continue
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
	}
	return string(out)
}
