//! Which machine and which commit the numbers are of.

use std::fs;
use std::process::Command;

/// One line about the machine.
pub fn describe() -> String {
    let cpu = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown CPU".into());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let congestion = read("/proc/sys/net/ipv4/tcp_congestion_control");
    let (kernel, congestion) = (kernel.trim(), congestion.trim());
    format!("{cpu}, {count} processors, Linux {kernel}, TCP's default is {congestion}")
}

/// The commit that was measured, and whether the tree has changed since.
pub fn commit() -> String {
    let git = |args: &[&str]| -> Option<String> {
        let output = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return String::from("unknown");
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let changed = changed.is_some_and(|list| !list.is_empty());
    if changed { format!("{commit}, with changes") } else { commit }
}

/// What is set for Weft in the environment.
pub fn settings() -> Vec<String> {
    let all = std::env::vars().filter(|(name, _)| name.starts_with("WEFT_"));
    let mut settings: Vec<String> = all.map(|(name, value)| format!("{name}={value}")).collect();
    settings.sort();
    settings
}

/// Whether this user may choose `name` as a socket's congestion control.
pub fn allows_congestion(name: &str) -> bool {
    let list = read("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    list.split_whitespace().any(|allowed| allowed == name)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn field(table: &str, name: &str) -> Option<String> {
    let line = table.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let line = describe();
        assert!(line.contains("Linux ") && line.contains("processors"), "{line}");
    }

    #[test]
    fn fields_are_found() {
        assert_eq!(field("a\t: 1\nmodel name\t: X Y\n", "model name").unwrap(), "X Y");
        assert_eq!(field("a: 1", "b"), None);
    }
}
