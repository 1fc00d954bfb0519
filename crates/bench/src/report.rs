//! `weft bench report`: results as one page of HTML that needs nothing else, and figures as SVG and
//! PNG.
//!
//! Invariant: the page has no script and asks no network for anything; its own policy forbids both.

mod chart;
mod page;
mod picture;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueHint};
use weft_chart::Drawing;

use self::chart::FigureWidth;
use self::picture::Browser;
use crate::arguments::wrong_argument;
use crate::journal::Journal;
use crate::output;

/// Which results, and what to make of them.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Files of results; each becomes a part of the page
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Write the page here
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    #[arg(value_hint = ValueHint::FilePath)]
    out: PathBuf,
    /// Write each figure into this directory as well
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    svg: Option<PathBuf>,
    /// The same as PNG; a headless browser draws them
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    png: Option<PathBuf>,
}

/// Writes the page, and the figures if they are asked for.
///
/// # Errors
/// A file cannot be read or written, or nothing in the files can be drawn.
pub fn run(options: &ReportArgs) -> Result<()> {
    let journals = options.files.iter().map(|file| Journal::read(file).map_err(wrong_argument));
    let journals: Vec<Journal> = journals.collect::<Result<_>>()?;
    let drawn = journals.iter().any(|journal| !journal.readings.is_empty());
    ensure!(drawn, "nothing has been measured in these files yet");
    write(&options.out, &page::html(&journals))?;
    if let Some(dir) = &options.svg {
        for_each_figure(&journals, dir, "svg", |drawing, file| write(file, &drawing.svg))?;
    }
    if let Some(dir) = &options.png {
        let camera = Browser::find()?;
        for_each_figure(&journals, dir, "png", |drawing, file| camera.take(drawing, file))?;
    }
    output::print(&format!("The report is in {}.\n", options.out.display()))
}

/// Hands every figure that can be drawn to `keep`, with the file in `dir` that it is to be in.
fn for_each_figure(
    journals: &[Journal],
    dir: &Path,
    kind: &str,
    keep: impl Fn(&Drawing, &Path) -> Result<()>,
) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (number, journal) in journals.iter().enumerate() {
        for figure in &journal.head.figures {
            if let Some(drawing) = chart::draw(figure, &journal.readings, FigureWidth::File) {
                keep(&drawing, &dir.join(file_name(&figure.id, number, kind)))?;
            }
        }
    }
    Ok(())
}

/// Ids come from a file; whatever is in them, they name files in one directory.
fn file_name(id: &str, part: usize, kind: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let id: String = id.chars().map(safe).collect();
    if part == 0 { format!("{id}.{kind}") } else { format!("{id}-{}.{kind}", part + 1) }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_leaves_the_directory() {
        assert_eq!(file_name("api", 0, "svg"), "api.svg");
        assert_eq!(file_name("../../x", 1, "png"), "______x-2.png");
    }
}
