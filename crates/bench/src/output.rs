//! Where a table goes: stdout, a file of its own, or its place in a page of Markdown.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use weft_chart::MarkedPage;

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
    /// The page cannot be read or written, or has no place for `table`.
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
    /// The page cannot be read or written, or has no place for `table`.
    pub fn check(&self, table: &str) -> Result<()> {
        let Some(page) = &self.into else { return Ok(()) };
        Ok(MarkedPage::read(page)?.check(table)?)
    }

    /// Puts `text` into its place; false if no page is named.
    ///
    /// # Errors
    /// The page cannot be read or written, or has no place for `table`.
    pub fn write(&self, table: &str, text: &str) -> Result<bool> {
        let Some(page) = &self.into else { return Ok(false) };
        MarkedPage::read(page)?.put(table, text)?;
        Ok(true)
    }
}
