package webhook

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestJSONIDs(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 60000) + strings.Repeat(`]}`, 60000)
	for _, tt := range []struct{ name, rule, body, want string }{
		{"a string", "json:id", `{"id":"evt_1"}`, "evt_1"},
		{"nested", "json:data.id", `{"id":"x","data":{"z":[{"id":2}],"id":"evt_1"}}`, "evt_1"},
		{"digits stay as they stand", "json:id", `{"id":9007199254740993}`, "9007199254740993"},
		{"a fraction stays as it stands", "json:id", ` { "id" : 1.0 } `, "1.0"},
		{"an exponent stays as it stands", "json:id", `{"id":-1e+3}`, "-1e+3"},
		{"names are matched by case", "json:id", `{"ID":1,"Id":2,"iD":3}`, ""},
		{"the last of duplicate members counts", "json:id", `{"id":"a","id":"b"}`, "b"},
		{"also if it is unusable", "json:id", `{"id":"a","id":null}`, ""},
		{"also above the id", "json:a.b", `{"a":{"b":1},"a":{"b":2}}`, "2"},
		{"also if the last has no id", "json:a.b", `{"a":{"b":1},"a":{}}`, ""},
		{"also if the last is no object", "json:a.b", `{"a":{"b":1},"a":3}`, ""},
		{"null is no id", "json:id", `{"id":null}`, ""},
		{"an empty string is no id", "json:id", `{"id":""}`, ""},
		{"an object is no id", "json:id", `{"id":{"id":1}}`, ""},
		{"an array is no id", "json:id", `{"id":[1]}`, ""},
		{"true is no id", "json:id", `{"id":true}`, ""},
		{"an id only deeper is no id", "json:id", `{"a":{"id":1},"b":[{"id":2}]}`, ""},
		{"an array is no object", "json:id", `[{"id":1}]`, ""},
		{"escapes in the name", "json:id", `{"\u0069d":"evt_1"}`, "evt_1"},
		{"escapes in the value", "json:id", `{"id":"a\u00e9\n\"\\\/\ud83d\ude00"}`, "aé\n\"\\/😀"},
		{"invalid UTF-8 stays", "json:id", "{\"id\":\"\xff\"}", "\xff"},
		{"half a surrogate pair is itself", "json:id", `{"id":"\ud83d"}`, "\xed\xa0\xbd"},
		{"and the other half", "json:id", `{"id":"\ude00\ud83d\u0041"}`, "\xed\xb8\x80\xed\xa0\xbdA"},
		{"a byte order mark is skipped", "json:id", "\xef\xbb\xbf{\"id\":1}", "1"},
		{"one in the middle is a fault", "json:id", "{\xef\xbb\xbf\"id\":1}", ""},
		{"cut off", "json:id", `{"id":"evt_1"`, ""},
		{"cut off in a string", "json:id", `{"id":"evt_1","x":"`, ""},
		{"two values", "json:id", `{"id":1}{"id":1}`, ""},
		{"trailing garbage", "json:id", `{"id":1} x`, ""},
		{"a trailing comma", "json:id", `{"id":1,}`, ""},
		{"a trailing comma in an array", "json:id", `{"id":1,"a":[1,]}`, ""},
		{"no colon", "json:id", `{"id" 1}`, ""},
		{"wrong bracket", "json:id", `{"id":1,"a":[1}}`, ""},
		{"leading zero", "json:id", `{"id":01}`, ""},
		{"no digits", "json:id", `{"id":1,"b":-}`, ""},
		{"NaN", "json:id", `{"id":1,"b":NaN}`, ""},
		{"a raw line break in a string", "json:id", "{\"id\":\"a\nb\"}", ""},
		{"a wrong escape", "json:id", `{"id":1,"b":"\x"}`, ""},
		{"each element", "json:events[].id", `{"events":[{"id":"a"},{"id":"b","x":[1,2]}]}`, "a,b"},
		{"elements at the top", "json:[].id", `[{"id":"a"},{"id":2}]`, "a,2"},
		{"one element lacks it", "json:events[].id", `{"events":[{"id":"a"},{}]}`, ""},
		{"one element is no object", "json:events[].id", `{"events":[{"id":"a"},7]}`, ""},
		{"no element", "json:events[].id", `{"events":[]}`, ""},
		{"no array", "json:events[].id", `{"events":{"id":1}}`, ""},
		{"arrays in arrays", "json:e[].c[].id", `{"e":[{"c":[{"id":1},{"id":2}]},{"c":[{"id":3}]}]}`, "1,2,3"},
		{"an array of one", "json:events[].id", `{"events":[{"id":"a,b"}]}`, "a%2Cb"},
		{"a duplicate array", "json:events[].id", `{"events":[{"id":"a"}],"events":[{"id":"b"}]}`, "b"},
		{"a duplicate in an element", "json:events[].id", `{"events":[{"id":"a"},{"id":"b","id":"c"}]}`, "a,c"},
		{"array of values", "json:ids[]", `{"ids":["a","b"]}`, "a,b"},
		{"deep nesting", "json:id", `{"a":` + deep + `,"id":"evt_1"}`, "evt_1"},
		{"more elements than anybody sends", "json:a[]", `{"a":[` + strings.Repeat("1,", maxFound+1) + `1]}`, ""},
		{"a dot in a name", "json:a%2Eb", `{"a.b":"1","a":{"b":"2"}}`, "1"},
		{"a member called []", "json:a[]", `{"a":{"[]":1}}`, ""},
		{"percent in a composite", "json:a+json:b", `{"a":"1%2B","b":"2"}`, "1%252B+2"},
		{"parts do not run into each other", "json:a+json:b", `{"a":"1+2","b":"3"}`, "1%2B2+3"},
		{"a missing part", "json:a+json:b", `{"a":"1"}`, ""},
		{"the first complete alternative", "json:a+json:b|json:a", `{"a":"1"}`, "1"},
		{"hash of a member", "sha256:event", `{"event": {"a" : 1} }`, hexSHA256([]byte(`{"a" : 1}`))},
		{"hash of no member", "sha256:event", `{}`, ""},
		{"hash of the body as a part", "json:a+sha256", `{"a":1}`, "1+" + hexSHA256([]byte(`{"a":1}`))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rule, err := ParseKeyRule(tt.rule)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := rule.EventID(&Request{Body: []byte(tt.body)})
			if got != tt.want || ok != (tt.want != "") {
				t.Errorf("got %q, %v; want %q", got, ok, tt.want)
			}
		})
	}
}

// referenceIDs are what path should find, by encoding/json, in documents of valid UTF-8; nil if there is no id.
func referenceIDs(doc []byte, path []step) []string {
	var root any // of duplicate members it keeps the last
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.UseNumber()
	if !json.Valid(doc) || decoder.Decode(&root) != nil {
		return nil
	}
	ids, ok := referenceWalk(root, path)
	if !ok {
		return nil
	}
	return ids
}

func referenceWalk(value any, path []step) (ids []string, ok bool) {
	if len(path) == 0 {
		switch v := value.(type) {
		case string:
			return []string{v}, v != ""
		case json.Number:
			return []string{v.String()}, true
		}
		return nil, false
	}
	if !path[0].each {
		members, _ := value.(map[string]any)
		member, ok := members[path[0].name]
		if !ok {
			return nil, false
		}
		return referenceWalk(member, path[1:])
	}
	elements, _ := value.([]any)
	for _, e := range elements {
		more, ok := referenceWalk(e, path[1:])
		if !ok {
			return nil, false
		}
		ids = append(ids, more...)
	}
	return ids, len(ids) > 0
}

func FuzzEventID(f *testing.F) {
	for _, seed := range []string{
		`{"id":"evt_1"}`, `{"id":9007199254740993}`, `{"a":{"id":1},"id":"x","id":null}`, "\xef\xbb\xbf{\"id\":1}", `[{"id":1}]`,
		`{"id":"\ud83d\ude00\u00e9\n"}`, `{"\u0069d":-1.5e3}`, `{"id":"` + "\xff" + `"}`, "{\n  \"id\": \"long enough for eight bytes\",\n        \"b\": [true, false, null]\n}\r\n",
		`{"id":1}x`, `{"id":01}`, `{"id":"a\qb"}`, `{"e":[{"id":1},{"id":"2","c":[{"a":3},{"a":4}]}],"a":{"b":1},"a":{"b":2}}`,
		`[{"a":1},{"a":"b"}]`, `{"e":[1,"2",{"id":1},[]],"e":["3"]}`, `{"e":[{"c":[{"a":1}]},{"c":[]}]}`, `{"a":{"b":1},"a":[{"b":2}]}`,
	} {
		f.Add([]byte(seed))
	}
	var paths [][]step
	for _, text := range []string{"id", "a.b", "e[].id", "[].a", "e[].c[].a", "e[]"} {
		path, err := parsePath(text)
		if err != nil {
			f.Fatal(err)
		}
		paths = append(paths, path)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		doc := bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
		if nesting(doc) > 9000 { // encoding/json gives up at 10 000
			return
		}
		before := bytes.Clone(body)
		for _, path := range paths {
			if _, valid := find(body, path); valid != json.Valid(doc) {
				t.Fatalf("valid=%v, encoding/json disagrees", valid)
			}
			got := ids(body, path)
			// encoding/json replaces invalid UTF-8 and half surrogate pairs, which may make two members or ids one
			if !utf8.Valid(body) || bytes.Contains(bytes.ToLower(body), []byte(`\ud`)) {
				continue
			}
			if want := referenceIDs(doc, path); !slices.Equal(got, want) {
				t.Fatalf("%v: got %q, encoding/json finds %q", path, got, want)
			}
		}
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
	})
}

func nesting(body []byte) int { return bytes.Count(body, []byte("[")) + bytes.Count(body, []byte("{")) }
