//! The words of a Rust file that are compiled into the product: no comments, literals or tests.
//!
//! Invariant: an item behind `#[cfg(test)]` leaves no token, wherever in the file it stands.

use crate::source::Code;
use crate::tree::TextFile;

/// Keywords of items that end with a brace or a semicolon, never with a comma.
const ITEMS: [&str; 12] = [
    "fn", "impl", "mod", "struct", "enum", "trait", "union", "const", "static", "type", "unsafe",
    "extern",
];

/// One word, `::`, or a mark of one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeToken {
    /// Text of the token.
    pub text: String,
    /// Its line, from 1.
    pub line: usize,
}

impl CodeToken {
    /// Whether it is an identifier or a keyword.
    pub fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// The tokens of a file's product, and the modules that it declares for tests only.
#[derive(Clone, Debug)]
pub struct Product {
    /// In their order.
    pub tokens: Vec<CodeToken>,
    /// Names of `#[cfg(test)] mod NAME;`.
    pub test_modules: Vec<String>,
}

/// Reads the product of `file`.
pub fn product(file: &TextFile) -> Product {
    let mut all = Vec::new();
    for (number, line) in Code::of(file).product() {
        split(line, number, &mut all);
    }
    let mut product = Product { tokens: Vec::new(), test_modules: Vec::new() };
    let mut at = 0;
    while at < all.len() {
        if is_test_attribute(&all[at..]) {
            let end = at + item_len(&all[at..]);
            let item = all[at..end].iter().map(|token| token.text.as_str());
            let words: Vec<&str> = item.collect();
            if let [.., "mod", name, ";"] = words.as_slice() {
                product.test_modules.push((*name).to_owned());
            }
            at = end;
        } else {
            product.tokens.push(all[at].clone());
            at += 1;
        }
    }
    product
}

fn split(line: &str, number: usize, into: &mut Vec<CodeToken>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        let (text, after) = rest.split_at(len);
        // The insides of literals are quotation marks.
        if first != '"' {
            into.push(CodeToken { text: text.to_owned(), line: number });
        }
        rest = after.trim_start();
    }
}

fn starts_with(tokens: &[CodeToken], words: &[&str]) -> bool {
    tokens.len() >= words.len() && tokens.iter().zip(words).all(|(token, word)| token.text == *word)
}

fn is_test_attribute(tokens: &[CodeToken]) -> bool {
    starts_with(tokens, &["#", "[", "cfg", "(", "test", ")", "]"])
        || starts_with(tokens, &["#", "[", "cfg", "(", "all", "(", "test", ","])
}

/// The length of the item or field that begins here with its attributes.
fn item_len(tokens: &[CodeToken]) -> usize {
    let mut at = 0;
    while starts_with(&tokens[at..], &["#", "["]) {
        at += 1 + group_len(&tokens[at + 1..]);
    }
    let head = tokens[at..].iter().take_while(|token| token.is_word());
    let is_item = head.clone().any(|token| ITEMS.contains(&token.text.as_str()));
    let is_use = head.clone().any(|token| token.text == "use");
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            ")" | "]" | "}" => return at,
            "{" => {
                at += group_len(&tokens[at..]);
                if !is_use {
                    return at;
                }
            }
            "(" | "[" => at += group_len(&tokens[at..]),
            _ => at += 1,
        }
    }
    at
}

/// The length of the group of brackets that begins here.
fn group_len(tokens: &[CodeToken]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Product {
        product(&TextFile { path: "src/a.rs".into(), text: text.into() })
    }

    fn words(text: &str) -> String {
        let words: Vec<String> = of(text).tokens.into_iter().map(|token| token.text).collect();
        words.join(" ")
    }

    #[test]
    fn paths_words_and_marks_are_told_apart() {
        assert_eq!(words("a::b(&'x \"c::d\") // e\n"), "a :: b ( & ' x )");
        let lines: Vec<usize> = of("a\n\nb").tokens.iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 3]);
    }

    #[test]
    fn items_for_tests_leave_nothing() {
        let kept = "a ; z ;";
        for item in [
            "use x::{y, w};",
            "mod tests;",
            "#[allow(dead_code)]\nfn inside() { fn x() {} }",
            "pub fn x<A, B>(a: A) -> [u8; 2] { y() }",
            "const X: u8 = 1;",
            "impl A for B { fn x() {} }",
        ] {
            assert_eq!(words(&format!("a;\n#[cfg(test)]\n{item}\nz;\n")), kept, "{item}");
        }
        assert_eq!(words("#[cfg(all(test, unix))]\nfn x() {}\nz"), "z");
        assert_eq!(words("struct S { #[cfg(test)] x: u8, y: u8 }"), "struct S { y : u8 }");
        assert_eq!(words("struct S { y: u8, #[cfg(test)] x: u8 }"), "struct S { y : u8 , }");
    }

    #[test]
    fn modules_for_tests_are_named() {
        assert_eq!(of("#[cfg(test)]\npub(crate) mod model;\nmod b;").test_modules, ["model"]);
        assert!(of("mod b;").test_modules.is_empty());
    }
}
