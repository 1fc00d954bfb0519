//! Act 1: what unmodified applications see without Weft and with it.

use anyhow::{Result, ensure};

use super::act::DemoAct;
use super::screen::DemoScreen;
use crate::lab::{BenchLab, is_installed};
use crate::pair::ServerEnds;
use crate::process::Spec;

/// Bytes of a message of rping, which takes one less than 64 KiB at most, and their count.
const PING_BYTES: u64 = 65_000;
const PINGS: u64 = 1000;
/// Lines that are shown of a command's output.
const SHOWN_LINES: usize = 2;

/// Plays the act.
///
/// # Errors
/// rping failed over Weft, or found wrong data.
pub fn play(lab: &BenchLab, screen: &mut DemoScreen) -> Result<DemoAct> {
    let mut act = DemoAct::new(1, "RDMA devices where there are none");
    screen.line("");
    screen.title("1  RDMA devices where there are none");
    match is_installed("ibv_devinfo") {
        true => list_devices(lab, screen)?,
        false => act.skipped.push("ibv_devinfo is not installed".into()),
    }
    match is_installed("rping") {
        true => act.verified.push(ping(lab, screen)?),
        false => act.skipped.push("rping is not installed".into()),
    }
    act.skipped.iter().for_each(|why| screen.line(&format!("   skipped: {why}")));
    Ok(act)
}

fn list_devices(lab: &BenchLab, screen: &mut DemoScreen) -> Result<()> {
    let without = said(lab, &Spec::new("ibv_devinfo"))?;
    screen.line("   $ ibv_devinfo");
    without.lines().take(SHOWN_LINES).for_each(|line| show(screen, line));
    let with = said(lab, &Spec::new("ibv_devinfo").under(&lab.weft))?;
    screen.line("   $ weft run ibv_devinfo");
    let wanted = |line: &&str| line.starts_with("hca_id") || line.contains("transport:");
    with.lines().filter(wanted).for_each(|line| show(screen, line));
    ensure!(with.contains("weft"), "ibv_devinfo finds no device of Weft: {with}");
    Ok(())
}

/// rping by rdma-cm; both sides compare what was read and what was written with what was sent.
fn ping(lab: &BenchLab, screen: &mut DemoScreen) -> Result<String> {
    let shown = format!("rping -c -a {} -C {PINGS} -S {PING_BYTES} -V", lab.address);
    screen.line(&format!("   $ {shown}"));
    let alone = Spec::new("rping").args(&format!("-c -a {} -C 1 -V", lab.address));
    said(lab, &alone)?.lines().take(SHOWN_LINES).for_each(|line| show(screen, line));
    let pair = lab.pair(ServerEnds::ByItself, |port| {
        let side = format!("-a {} -p {port} -C {PINGS} -S {PING_BYTES} -V", lab.address);
        let rping = |role: &str| Spec::new("rping").args(&format!("{role} {side}"));
        (rping("-s").under(&lab.weft), rping("-c").under(&lab.weft))
    })?;
    for side in [&pair.server, &pair.client] {
        ensure!(!side.stderr.contains("mismatch"), "wrong data:\n{}", side.stderr);
    }
    let verified = format!(
        "{PINGS} x {PING_BYTES} bytes read and written back in {:.2} s, every byte compared by \
         rping: all right",
        pair.elapsed.as_secs_f64()
    );
    screen.line(&format!("   $ weft run {shown}"));
    show(screen, &verified);
    Ok(verified)
}

fn show(screen: &mut DemoScreen, line: &str) {
    screen.line(&format!("     {}", line.trim().replace('\t', " ")));
}

/// What a command says, however it ends.
fn said(lab: &BenchLab, command: &Spec) -> Result<String> {
    let script = format!("timeout 10 {} 2>&1; true", command.shell());
    let finished = lab.alone(&Spec::new("sh").arg("-c").arg(&script))?;
    Ok(finished.stdout)
}
