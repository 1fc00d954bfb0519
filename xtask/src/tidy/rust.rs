//! Rules for Rust files: a module doc, and limits for files and functions.

use super::functions;
use crate::finding::Finding;
use crate::source::Code;
use crate::tree::TextFile;

/// The most lines of code in a file, its unit tests, comments and blank lines aside.
const FILE_LINES: usize = 600;
/// The most lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 70;

/// Checks one file.
pub fn check(file: &TextFile) -> Vec<Finding> {
    let code = Code::of(file);
    let mut findings = Vec::new();
    if !file.text.starts_with("//!") {
        findings.push(Finding::new(&file.path, 1, "a module begins with its doc: //!"));
    }
    let lines = counted(file, &code);
    if lines > FILE_LINES {
        let message = format!("{lines} lines of code; at most {FILE_LINES} in a file");
        findings.push(Finding::new(&file.path, 1, message));
    }
    for function in functions::find(&code.text()) {
        if function.lines > FUNCTION_LINES {
            let (name, lines) = (&function.name, function.lines);
            let message = format!("{name} has {lines} lines; at most {FUNCTION_LINES}");
            findings.push(Finding::new(&file.path, function.line, message));
        }
    }
    findings
}

/// Lines that hold code. A file of integration tests counts whole: it is its own product.
fn counted(file: &TextFile, code: &Code) -> usize {
    let holds_code = |(_, line): &(usize, &str)| !line.trim().is_empty();
    match file.is_test() {
        true => code.lines().filter(holds_code).count(),
        false => code.product().filter(holds_code).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let file = TextFile { path: path.into(), text: text.into() };
        check(&file).into_iter().map(|f| f.to_string()).collect()
    }

    fn statements(count: usize) -> String {
        "    a();\n".repeat(count)
    }

    #[test]
    fn a_module_says_what_it_is() {
        assert!(faults("src/a.rs", "//! A.\nfn a() {}\n").is_empty());
        assert_eq!(faults("src/a.rs", "use a;\n").len(), 1);
        assert_eq!(faults("src/a.rs", "// A.\n").len(), 1);
    }

    #[test]
    fn functions_have_an_end() {
        let function = |count| format!("//! A.\nfn a() {{\n{}}}\n", statements(count));
        assert!(faults("src/a.rs", &function(68)).is_empty());
        assert_eq!(faults("src/a.rs", &function(69)), ["src/a.rs:2: a has 71 lines; at most 70"]);
    }

    #[test]
    fn long_functions_show_in_tests_too() {
        let body = statements(70);
        let text = format!("//! A.\n#[cfg(test)]\nmod tests {{\nfn a() {{\n{body}}}\n}}\n");
        assert_eq!(faults("src/a.rs", &text).len(), 1);
    }

    #[test]
    fn files_count_code_only() {
        let constants = |count| "const A: u8 = 1;\n".repeat(count);
        let rest = "// why\n\n/* what\n */\n".repeat(50);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", constants(100));
        let good = format!("//! A.\n{}{rest}{tests}", constants(600));
        assert!(faults("src/a.rs", &good).is_empty());
        let bad = format!("//! A.\n{}", constants(601));
        assert_eq!(faults("src/a.rs", &bad).len(), 1);
        assert_eq!(faults("tests/a.rs", &bad).len(), 1);
    }
}
