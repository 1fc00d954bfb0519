//! Where a table goes: stdout, a file of its own, or its place in a page of Markdown.
//!
//! The place of a table is what stands between the lines `<!-- NAME -->` and
//! `<!-- end of NAME -->`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueHint};

/// Options of a command that prints a table.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// JSON instead of tables
    #[arg(long, conflicts_with = "into")]
    pub json: bool,
    /// Write the result to this file instead of stdout
    #[arg(long, value_name = "FILE", conflicts_with = "into", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
    #[command(flatten)]
    into: IntoArgs,
}

/// The page that has a place for a table.
#[derive(Debug, Args)]
pub struct IntoArgs {
    /// Put the tables into their place in this page of Markdown, as `make benchmarks` does
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    into: Option<PathBuf>,
}

impl OutputArgs {
    /// Looks whether the result can go where it is to go, before it is measured.
    ///
    /// # Errors
    /// The page cannot be read, or has no place for `table`.
    pub fn check(&self, table: &str) -> Result<()> {
        self.into.check(table)
    }

    /// Hands over the result.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, table: &str, text: &str) -> Result<()> {
        match &self.out {
            Some(file) => {
                fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
            }
            None if self.into.write(table, text)? => Ok(()),
            None => print(text),
        }
    }
}

/// Writes to stdout.
///
/// # Errors
/// It cannot be written.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("writing to stdout")
}

impl IntoArgs {
    /// As [`OutputArgs::check`].
    ///
    /// # Errors
    /// The page cannot be read, or has no place for `table`.
    pub fn check(&self, table: &str) -> Result<()> {
        let Some(page) = &self.into else { return Ok(()) };
        let text = read(page)?;
        replaced(&text, table, "").with_context(|| format!("{}", page.display())).map(drop)
    }

    /// Puts `text` into its place; false if no page is named.
    ///
    /// # Errors
    /// The page cannot be read or written, or has no place for `table`.
    pub fn write(&self, table: &str, text: &str) -> Result<bool> {
        let Some(page) = &self.into else { return Ok(false) };
        let before = read(page)?;
        let after = replaced(&before, table, text)?;
        fs::write(page, after).with_context(|| format!("cannot write {}", page.display()))?;
        Ok(true)
    }
}

fn read(page: &Path) -> Result<String> {
    fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))
}

/// The page with `text` in the place of `table`.
fn replaced(page: &str, table: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {table} -->\n"), format!("<!-- end of {table} -->\n"));
    let missing = || format!("the page has no lines {:?} and {:?}", begin.trim(), end.trim());
    let (before, rest) = page.split_once(&begin).with_context(missing)?;
    let (_, after) = rest.split_once(&end).with_context(missing)?;
    ensure!(!after.contains(&begin), "the page has {:?} twice", begin.trim());
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_what_is_in_its_place() {
        let page = "# A\n<!-- lan -->\n\nold\n<!-- end of lan -->\nB\n";
        let after = replaced(page, "lan", "\nnew\n").unwrap();
        assert_eq!(after, "# A\n<!-- lan -->\n\nnew\n\n<!-- end of lan -->\nB\n");
        assert_eq!(replaced(&after, "lan", "new").unwrap(), after, "twice is as once");
        assert!(replaced(page, "wan", "new").is_err());
    }
}
