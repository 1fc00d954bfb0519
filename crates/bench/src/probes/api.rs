//! Cost of single calls and of an idle connection, by a small verbs program in C that is both ends
//! of the connection.

use anyhow::{Context, Result};

use super::BenchProbe;
use crate::lab::BenchLab;
use crate::ports;
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit};

const SOURCE: &str = include_str!("../../c/api.c");

/// Below this, what the measurement itself costs would show.
const IDLE_SECONDS_MIN: f64 = 3.0;

/// The names of the series of [`Calls`] and [`Idle`].
pub const POLL: &str = "ibv_poll_cq, nothing there";
/// Posting, for each of a list.
pub const POST_LIST: &str = "ibv_post_send, each of 32 in a list";
/// Posting, alone.
pub const POST_ONE: &str = "ibv_post_send, one alone";
/// Registering.
pub const REGISTER: &str = "ibv_reg_mr, 1 MiB";
/// Idle connection.
pub const IDLE: &str = "a connected process that does nothing";

/// The cost of single calls.
#[derive(Debug, Default)]
pub struct Calls;

/// The cost of a connection that nobody uses.
#[derive(Debug, Default)]
pub struct Idle;

impl BenchProbe for Calls {
    fn name(&self) -> String {
        String::from("single verbs calls")
    }

    fn program(&self) -> Option<&str> {
        Some("gcc")
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let said = run(lab, "calls", "")?;
        let reading = |series: &str, name: &str| -> Result<ProbeReading> {
            Ok(ProbeReading::new(series, ReadingUnit::Nanoseconds, value(&said, name)?))
        };
        Ok(vec![
            reading(POLL, "poll")?,
            reading(POST_LIST, "post_list")?,
            reading(POST_ONE, "post_one")?,
            reading(REGISTER, "reg_mr")?,
        ])
    }
}

impl BenchProbe for Idle {
    fn name(&self) -> String {
        String::from("an idle connection")
    }

    fn program(&self) -> Option<&str> {
        Some("gcc")
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let seconds = lab.seconds.max(IDLE_SECONDS_MIN).ceil();
        let said = run(lab, "idle", &seconds.to_string())?;
        Ok(vec![ProbeReading::new(IDLE, ReadingUnit::CpuMillisPerSecond, value(&said, "idle")?)])
    }
}

fn run(lab: &BenchLab, what: &str, more: &str) -> Result<String> {
    let (address, port) = (&lab.address, ports::free()?);
    let program = lab.build("api", SOURCE, &["-libverbs", "-lrdmacm", "-lpthread"])?;
    let spec = Spec::at(&program).args(&format!("{what} {address} {port} {more}"));
    Ok(lab.alone(&spec.under(&lab.weft))?.stdout)
}

/// The value of the line `name value`.
fn value(said: &str, name: &str) -> Result<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).with_context(|| format!("no {name} in\n{said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let said = "post 1\npost_list 2.5\n";
        assert_eq!(value(said, "post_list").unwrap(), 2.5);
        assert_eq!(value(said, "post").unwrap(), 1.0);
        assert!(value(said, "poll").is_err());
    }
}
