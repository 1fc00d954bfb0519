//! Each page of docs/ has its place in the site that `make docs` makes: docs/SUMMARY.md names it.

use super::{read, root};

#[test]
fn every_page_has_its_place_in_the_summary() {
    let summary = read("docs/SUMMARY.md");
    let pages = std::fs::read_dir(root().join("docs")).expect("docs").flatten();
    let names = pages.map(|entry| entry.file_name().into_string().expect("a name"));
    let pages = names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md");
    let missing: Vec<String> =
        pages.filter(|name| !summary.contains(&format!("({name})"))).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}, which no reader will find");
}
