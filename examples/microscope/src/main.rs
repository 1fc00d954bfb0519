//! A virtual microscope (Catalyurek et al., IEEE Transactions on Information Technology in
//! Biomedicine, 2002): five filters look at a part of a slide through an objective.
//!
//! `read` fetches tiles of a pyramid, `decompress` unpacks them, `clip` cuts off what lies outside
//! the view, `zoom` shrinks what is left, and `view` puts it together. Invariant: the picture
//! depends on the slide and the query only, not on the units of work, nor on where filters run.
#![forbid(unsafe_code)]

mod filters;
mod slide;
mod tissue;
mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use weft_filters::command::{self, GroupOptions, GroupRunArgs, One, sections};
use weft_filters::{Extent, Filter, FilterProgram};

use crate::slide::Slide;
use crate::view::{Objective, View};

const PROGRAM: FilterProgram =
    FilterProgram { name: "microscope", filters: &["read", "decompress", "clip", "zoom", "view"] };

const EXAMPLES: &str = "\
EXAMPLES
    A slide, and a look at it:
        microscope slide tissue.slide
        microscope run tissue.slide --objective 40 --at 1600,1200 --out view.png

    The same over RDMA; stderr says so:
        weft run --sockets -v microscope run tissue.slide

    How fast small units of work are:
        microscope run tissue.slide --unit 1K --repeat 20

    Each filter on a host of its own; the first one is started last:
        microscope filter view --listen 0.0.0.0:7004 --out view.png
        microscope filter zoom --listen 0.0.0.0:7003 --to host4:7004
        microscope filter clip --listen 0.0.0.0:7002 --to host3:7003
        microscope filter decompress --listen 0.0.0.0:7001 --to host2:7002
        microscope filter read tissue.slide --to host1:7001";

/// A virtual microscope of five filters, over plain sockets.
#[derive(Debug, Parser)]
#[command(name = "microscope", version, after_long_help = sections::<ViewArgs>())]
struct MicroscopeCli {
    #[command(subcommand)]
    command: MicroscopeCommand,
}

#[derive(Debug, Subcommand)]
enum MicroscopeCommand {
    /// Make a slide: a picture of tissue that was never alive, as a pyramid of compressed tiles
    Slide(SlideArgs),
    /// Look at a slide: all filters on this machine, each a process of its own
    Run(GroupRunArgs<ViewArgs>),
    /// Run one filter, for the filters of other hosts
    Filter(One<ViewArgs>),
}

#[derive(Debug, Args)]
struct SlideArgs {
    /// The file to write
    file: PathBuf,
    /// Width and height in pixels, multiples of 256
    #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "4096x3072")]
    size: Extent,
    /// What the tissue follows from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u32,
}

#[derive(Debug, Args)]
struct ViewArgs {
    /// What to look through
    #[arg(long, value_name = "OBJECTIVE", default_value_t = Objective::Twenty)]
    objective: Objective,
    /// The middle of the view, in pixels of the slide [default: the middle of the slide]
    #[arg(long, value_name = "X,Y")]
    at: Option<Extent>,
    /// Width and height of the picture
    #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "1024x768")]
    size: Extent,
    #[command(flatten)]
    options: GroupOptions,
}

fn main() -> ExitCode {
    let result = match MicroscopeCli::parse().command {
        MicroscopeCommand::Slide(make) => {
            slide::make(&make.file, make.seed, make.size).map(|()| ExitCode::SUCCESS)
        }
        MicroscopeCommand::Run(run) => run.work(),
        MicroscopeCommand::Filter(one) => one.work(),
    };
    command::status(&PROGRAM, result)
}

impl command::QueryArgs for ViewArgs {
    const PROGRAM: FilterProgram = PROGRAM;
    const DATA: &'static str = "SLIDE";
    const EXAMPLES: &'static str = EXAMPLES;

    fn options(&self) -> &GroupOptions {
        &self.options
    }

    fn query(&self, slide: &Path) -> Result<Vec<u8>> {
        let view = View::of(&Slide::open(slide)?, self.at, self.size, self.objective)?;
        Ok(serde_json::to_vec(&view)?)
    }

    fn filter(&self, name: &str, slide: Option<&Path>) -> Result<Box<dyn Filter>> {
        Ok(match name {
            "read" => {
                Box::new(filters::ReadTiles(Slide::open(slide.context("no slide is given")?)?))
            }
            "decompress" => Box::new(filters::Decompress),
            "clip" => Box::new(filters::Clip::default()),
            "zoom" => Box::new(filters::Zoom::default()),
            _ => Box::new(filters::Show::new(self.options.out.clone())),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        MicroscopeCli::command().debug_assert();
    }
}
