//! `weft trace show`: a trace of `weft run --trace` as a page.
//!
//! Order: [`read`] takes the records in, [`page`] draws them. Invariant: a trace that ends in the
//! middle of a record, as that of a killed process may, is shown as far as it goes.

mod page;
mod read;

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueHint};
use degen::files::OutputKind;

/// Pages of this command.
const PAGE: OutputKind = OutputKind {
    option: "--output",
    name: "no page of weft trace show",
    magic: page::HEAD.as_bytes(),
};

/// The arguments of `weft trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// What to do
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// What `weft trace` does.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Draw rate, round trip, window and losses over time, as one page for a browser
    ///
    /// The page is self-contained and loads nothing.
    Show(TraceShow),
}

/// The arguments of `weft trace show`.
#[derive(Debug, Args)]
pub struct TraceShow {
    /// What `weft run --trace FILE` has written
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// Where the page goes; `-` is stdout [default: FILE with .html behind it]
    #[arg(short, long, value_name = "PAGE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

/// Does what `args` say.
///
/// # Errors
/// The file is no trace, or the page cannot be written.
pub fn main(args: &TraceArgs) -> Result<()> {
    let TraceCommand::Show(show) = &args.command;
    let file =
        File::open(&show.file).with_context(|| format!("cannot read {}", show.file.display()))?;
    let run = read::read(BufReader::new(file))
        .with_context(|| format!("{} is no trace of weft run --trace", show.file.display()))?;
    let page = page::draw(&run);
    match &show.output {
        Some(path) if path == Path::new("-") => Ok(io::stdout().write_all(page.as_bytes())?),
        Some(path) => write(path, &page),
        None => {
            let mut name = show.file.clone().into_os_string();
            name.push(".html");
            // Nobody has typed this name.
            PAGE.check(Path::new(&name))?;
            write(Path::new(&name), &page)
        }
    }
}

fn write(path: &Path, page: &str) -> Result<()> {
    fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    writeln!(io::stdout(), "{}", path.display())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use weft_testkit::Dir;

    use super::*;

    #[test]
    fn a_page_without_a_given_name_replaces_pages_only() {
        let dir = Dir::new("trace-page");
        dir.write("tr.qlog", "\u{1e}{\"qlog_format\":\"JSON-SEQ\"}\n");
        let show = TraceShow { file: dir.path("tr.qlog"), output: None };
        let args = TraceArgs { command: TraceCommand::Show(show) };
        for _ in 0..2 {
            main(&args).unwrap();
        }
        dir.write("tr.qlog.html", "<!doctype html>\n<p>mine");
        let error = main(&args).unwrap_err().to_string();
        assert!(error.ends_with("exists and is no page of weft trace show; name another file"));
        assert_eq!(
            fs::read_to_string(dir.path("tr.qlog.html")).unwrap(),
            "<!doctype html>\n<p>mine"
        );
    }
}
