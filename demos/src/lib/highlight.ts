/** Light colouring of WGSL, the program text and JavaScript: enough to see the structure. */

import { h } from "./dom.js";

export type Language = "wgsl" | "te" | "js" | "c";

const KEYWORDS: Readonly<Record<Language, string>> = {
  wgsl: "fn var let const for if else while loop return break continue struct override storage uniform workgroup private function read read_write",
  te: "tang-ir program dim input const bind alloc output state if else loop constraint sum max min product any all",
  js: "import export from const let await new return for of if else function async class",
  c: "for if else while return static const void restrict inline struct typedef",
};
const TYPES: Readonly<Record<Language, RegExp>> = {
  wgsl: /^(?:f32|f16|i32|u32|bool|vec[234](?:[fiuh])?|array|atomic|mat\dx\d)$/,
  te: /^(?:f32|f64|f16|i64|i32|i8|u8|u32|bool)$/,
  js: /^(?:Float32Array|Uint8Array|Promise)$/,
  c: /^(?:float|double|int|int32_t|int64_t|uint8_t|size_t|v\d+\w+)$/,
};
const TOKEN = /(\/\/[^\n]*|#[^\n]*)|("(?:[^"\\]|\\.)*")|(@\w+)|(\b\d[\w.]*\b)|([A-Za-z_][\w-]*)|([^\w"@/#]+|.)/g;

export function highlight(text: string, language: Language): DocumentFragment {
  const keywords = new Set(KEYWORDS[language].split(" "));
  const out = document.createDocumentFragment();
  for (const [whole, comment, string, attribute, numeral, word] of text.matchAll(TOKEN)) {
    const kind = comment && language !== "te" ? "c" : string ? "s" : attribute ? "a" : numeral ? "n"
      : word && keywords.has(word) ? "k" : word && TYPES[language].test(word) ? "t" : "";
    out.append(kind ? h("span", { class: kind }, whole) : whole);
  }
  return out;
}
