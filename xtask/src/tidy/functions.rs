//! Finds functions in the code of a file, by their braces.

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its `fn`, from 1.
    pub line: usize,
    /// Lines from its `fn` to its closing brace, both included.
    pub lines: usize,
}

/// Every function of `code`, nested ones too. `code` has no comments and no literals.
pub fn find(code: &str) -> Vec<Function> {
    let chars: Vec<char> = code.chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    for at in 0..chars.len() {
        line += usize::from(chars[at] == '\n');
        if let Some(name) = name_after_fn(&chars, at)
            && let Some(end) = body_end(&chars[at..])
        {
            let inside = chars[at..at + end].iter().filter(|&&c| c == '\n').count();
            found.push(Function { name, line, lines: inside + 1 });
        }
    }
    found
}

/// The name of the function whose `fn` stands at `at`. A function pointer has none.
fn name_after_fn(chars: &[char], at: usize) -> Option<String> {
    let word = |c: &char| c.is_alphanumeric() || *c == '_' || *c == '$' || *c == '#';
    let keyword = chars[at..].starts_with(&['f', 'n']) && chars.get(at + 2)?.is_whitespace();
    if !keyword || (at > 0 && word(&chars[at - 1])) {
        return None;
    }
    let rest = chars[at + 2..].iter().skip_while(|c| c.is_whitespace());
    let name: String = rest.take_while(|c| word(c)).collect();
    (!name.is_empty()).then_some(name)
}

/// The distance from `fn` to the end of the body; none for a declaration.
fn body_end(chars: &[char]) -> Option<usize> {
    let mut depth = 0;
    let mut in_body = false;
    for (at, c) in chars.iter().enumerate() {
        match c {
            '{' if depth == 0 => (depth, in_body) = (1, true),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ';' if depth == 0 => return None,
            _ => {}
        }
        if depth == 0 && in_body {
            return Some(at + 1);
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(code: &str) -> Vec<(String, usize, usize)> {
        find(code).into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    #[test]
    fn bodies_are_measured_to_their_last_brace() {
        let code =
            "\nfn a<T>(\n    x: [u8; 4],\n) -> [u8; 2]\nwhere\n    T: X,\n{\n    if b {\n }\n}\n";
        assert_eq!(seen(code), [(String::from("a"), 2, 9)]);
    }

    #[test]
    fn nested_functions_count_by_themselves() {
        let found = seen("fn a() {\n    fn b() {}\n}\nfn c() {}");
        let expected = [("a", 1, 3), ("b", 2, 1), ("c", 4, 1)];
        assert_eq!(found, expected.map(|(name, line, lines)| (name.to_owned(), line, lines)));
    }

    #[test]
    fn declarations_and_pointers_have_no_body() {
        assert!(seen("trait A { fn a(&self) -> u8; }").is_empty());
        assert!(seen("type F = fn (u8) -> u8; struct S { f: fn(u8) }").is_empty());
        assert!(seen("let my_fn = 1; { }").is_empty());
    }
}
