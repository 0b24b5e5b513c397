// Writes ids.json: for each event, as the text a client would send, its canonical form and id by the
// JSON.stringify and SHA-256 of this engine. Run: node gen-ids.mjs > ids.json
import { createHash } from "node:crypto";

const pubkey = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
const cases = [];

// add takes the wire text of created_at, kind, tags and content, so that escapes are ours to choose.
function add(name, content, { tags = "[]", kind = "1", created_at = "1700000000", refused } = {}) {
  const text = `{"pubkey":"${pubkey}","created_at":${created_at},"kind":${kind},"tags":${tags},"content":${content}`;
  const e = JSON.parse(text + "}");
  const canonical = JSON.stringify([0, e.pubkey, e.created_at, e.kind, e.tags, e.content]);
  const id = createHash("sha256").update(canonical, "utf8").digest("hex");
  const wire = `${text},"id":"${id}","sig":"${"00".repeat(64)}"}`;
  cases.push(refused ? { name, wire, refused } : { name, wire, canonical, id });
}

// str adds a string as the engine would write it: as content, and as a tag's value.
function str(name, s, options = {}) {
  add(name, JSON.stringify(s), options);
  add(`${name} in a tag`, '""', { ...options, tags: JSON.stringify([["t", s], [s]]) });
}

const hex = (c) => c.toString(16).padStart(2, "0");

str("empty", "");
str("ascii", "hello, world");
str("html", "<a href='x'>&amp;</a> <>& <script>");
str("quotes and backslashes", "\"'`\\ \\\" \\\\ \\n \\u0041");
str("solidus", "a/b </script>");
str("line separators", "\u2028 and \u2029");
str("next line and byte order mark", "\u0085\ufeff");
str("delete and C1", "\x7f\u0080\u009f");
str("non-characters", "\ufffe\uffff\ufdd0\u{1ffff}\u{10ffff}");
str("replacement character", "\ufffd");
str("astral", "😀 𝄞 👩‍👩‍👧‍👦 🇩🇪");
str("combining, not normalised", "e\u0301 \u00e9 \u1e9b\u0323 ﬁ");
str("right to left", "\u202eשלום مرحبا");
str("scripts", "日本語 한국어 ελληνικά кириллица हिन्दी");
for (let c = 0; c < 0x20; c++) str(`control 0x${hex(c)}`, `a${String.fromCharCode(c)}b`);
str("all controls", Array.from({ length: 0x20 }, (_, c) => String.fromCharCode(c)).join(""));
str("all of latin 1", Array.from({ length: 0x100 }, (_, c) => String.fromCharCode(c)).join(""));
str("json in json", JSON.stringify({ name: "a\"b", about: "c\nd\u2028" }));
str("long", "0123456789abcdef\n".repeat(600));

// Other ways to write the same strings.
add("escaped solidus", '"a\\/b <\\/script>"');
add("escaped ascii", '"\\u0041\\u0042\\u005A \\u003c\\u003E\\u0026"');
add("escaped quote and backslash by code", '"\\u0022\\u005c\\u005C"');
add("short escapes by code", '"\\u0008\\u0009\\u000a\\u000A\\u000c\\u000d"');
add("delete by code", '"\\u007f\\u007F"');
add("NUL", '"\\u0000"');
add("line separators by code", '"\\u2028\\u2029"');
add("surrogate pair by code", '"\\ud83d\\ude00\\uD834\\uDD1E"');
add("last code point by code", '"\\udbff\\udfff"');
add("every short escape", '"\\"\\\\\\/\\b\\f\\n\\r\\t"');
add("escaped in tags", '""', { tags: '[["\\u0065","\\ud83d\\ude00"],["t","\\/","\\u0000"]]' });

// Numbers.
add("created_at zero", '""', { created_at: "0" });
add("created_at minus zero", '""', { created_at: "-0" });
add("created_at negative", '""', { created_at: "-1" });
add("created_at 2^53-1", '""', { created_at: "9007199254740991" });
add("created_at -(2^53-1)", '""', { created_at: "-9007199254740991" });
add("kind 0", '""', { kind: "0" });
add("kind 65535", '""', { kind: "65535" });

// Tags.
add("no tags", '"x"');
add("tag without value", '"x"', { tags: '[["-"]]' });
add("empty strings", '""', { tags: '[[""],["",""]]' });
add("many elements", '""', { tags: '[["e","a","b","c","d"],["p"],["t","x"]]' });
add("whitespace around everything", '  "x"  ', { tags: ' [ [ "t" ,\t"x" ] ,\n[ "u" ] ] ', kind: " 7 ", created_at: " 5 " });

// Half a surrogate pair is no text in UTF-8.
for (const [name, s] of Object.entries({
  "lone high surrogate": '"\\ud800"',
  "lone low surrogate": '"\\udc00"',
  "high surrogate before a letter": '"\\ud83dx"',
  "high surrogate before an escape": '"\\ud83d\\u0041"',
  "two high surrogates": '"\\ud83d\\ud83d\\ude00"',
  "surrogates swapped": '"\\ude00\\ud83d"',
  "high surrogate before an escaped n": '"\\ud83d\\n"',
})) {
  add(name, s, { refused: true });
  add(`${name} in a tag`, '""', { tags: `[["t",${s}]]`, refused: true });
}

process.stdout.write("[\n" + cases.map((c) => JSON.stringify(c)).join(",\n") + "\n]\n");
