//! Iso-surface rendering (Beynon et al., CS-TR-4249, University of Maryland, 2001): four filters
//! find the surface on which a volume has some value, and make a picture of it.
//!
//! `read` cuts the volume into bricks, `extract` finds triangles by marching cubes, `raster` shades
//! them and gives the rays that meet them, `merge` keeps what is in front. Invariant: the picture
//! depends on the volume and the query only, not on the units of work, nor on where filters run.
#![forbid(unsafe_code)]

mod cubes;
mod extract;
mod render;
mod scene;
mod volume;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use weft_filters::command::{self, GroupOptions, GroupRunArgs, One, sections};
use weft_filters::{Extent, Filter, FilterProgram};

use crate::scene::Scene;
use crate::volume::Volume;

const PROGRAM: FilterProgram =
    FilterProgram { name: "isosurface", filters: &["read", "extract", "raster", "merge"] };

const EXAMPLES: &str = "\
EXAMPLES
    A volume, and its surface from two sides:
        isosurface volume rock.volume
        isosurface run rock.volume --out front.png
        isosurface run rock.volume --out left.png --turn 120

    The same over RDMA; stderr says so:
        weft run --sockets -v isosurface run rock.volume

    How fast small units of work are:
        isosurface run rock.volume --unit 1K --repeat 5

    Each filter on a host of its own; the first one is started last:
        isosurface filter merge --listen 0.0.0.0:7003 --out surface.png
        isosurface filter raster --listen 0.0.0.0:7002 --to host3:7003
        isosurface filter extract --listen 0.0.0.0:7001 --to host2:7002
        isosurface filter read rock.volume --to host1:7001";

/// Iso-surface rendering by four filters, over plain sockets.
#[derive(Debug, Parser)]
#[command(name = "isosurface", version, after_long_help = sections::<SurfaceArgs>())]
struct IsosurfaceCli {
    #[command(subcommand)]
    command: IsosurfaceCommand,
}

#[derive(Debug, Subcommand)]
enum IsosurfaceCommand {
    /// Make a volume: a rock full of pores
    Volume(VolumeArgs),
    /// Render a surface: all filters on this machine, each a process of its own
    Run(GroupRunArgs<SurfaceArgs>),
    /// Run one filter, for the filters of other hosts
    Filter(One<SurfaceArgs>),
}

#[derive(Debug, Args)]
struct VolumeArgs {
    /// The file to write
    file: PathBuf,
    /// Voxels along each side
    #[arg(long, value_name = "VOXELS", default_value_t = 192)]
    side: u32,
    /// What the rock follows from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u32,
}

#[derive(Debug, Args)]
struct SurfaceArgs {
    /// The surface is where voxels have this value, from 1 to 255
    #[arg(long, value_name = "VALUE", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    level: u8,
    /// How far the volume is turned, in degrees
    #[arg(long, value_name = "DEGREES", default_value_t = 30.0, allow_negative_numbers = true)]
    turn: f32,
    /// How far the volume is tilted to the viewer, in degrees
    #[arg(long, value_name = "DEGREES", default_value_t = 20.0, allow_negative_numbers = true)]
    tilt: f32,
    /// Width and height of the picture
    #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "800x800")]
    size: Extent,
    #[command(flatten)]
    options: GroupOptions,
}

fn main() -> ExitCode {
    let result = match IsosurfaceCli::parse().command {
        IsosurfaceCommand::Volume(make) => {
            volume::make(&make.file, make.seed, make.side).map(|()| ExitCode::SUCCESS)
        }
        IsosurfaceCommand::Run(run) => run.work(),
        IsosurfaceCommand::Filter(one) => one.work(),
    };
    command::status(&PROGRAM, result)
}

impl command::QueryArgs for SurfaceArgs {
    const PROGRAM: FilterProgram = PROGRAM;
    const DATA: &'static str = "VOLUME";
    const EXAMPLES: &'static str = EXAMPLES;

    fn options(&self) -> &GroupOptions {
        &self.options
    }

    fn query(&self, volume: &Path) -> Result<Vec<u8>> {
        let Self { level, turn, tilt, size, .. } = *self;
        let side = Volume::open(volume)?.side;
        let query = serde_json::to_vec(&Scene { side, level, turn, tilt, size })?;
        Scene::parse(&query)?;
        Ok(query)
    }

    fn filter(&self, name: &str, volume: Option<&Path>) -> Result<Box<dyn Filter>> {
        Ok(match name {
            "read" => {
                let volume = volume.context("no volume is given")?;
                Box::new(extract::ReadBricks(Volume::open(volume)?))
            }
            "extract" => Box::new(extract::Extract::new()),
            "raster" => Box::new(render::Raster::default()),
            _ => Box::new(render::Merge::new(self.options.out.clone())),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        IsosurfaceCli::command().debug_assert();
    }
}
