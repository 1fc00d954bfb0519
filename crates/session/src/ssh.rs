//! The user's own ssh: its options, what it starts at the far end, and how it ended.
//!
//! Invariant: nothing that a user or a far end names becomes an option of ssh or a word of a shell
//! by accident: hosts that begin with `-` are refused, and paths are quoted.
//!
//! Order: [`SshArgs::command`], spawn, talk; then the exit status by [`explain`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Result, ensure};
use clap::{Args, ValueHint};

use crate::hello::{MISSING, PROTOCOL, PortRange};

/// How the far end is reached: options of every command that starts one.
#[derive(Args, Clone, Debug, Default)]
pub struct SshArgs {
    /// The ssh to use, with options of its own
    #[arg(short = 'e', long = "rsh", value_name = "COMMAND", default_value = "ssh")]
    pub rsh: String,
    /// Port of ssh at the far end
    #[arg(short = 'p', value_name = "PORT")]
    pub ssh_port: Option<u16>,
    /// File with the key to log in with
    #[arg(short = 'i', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub identity: Option<PathBuf>,
    /// Log in through this host, as ssh -J
    #[arg(short = 'J', value_name = "HOST")]
    pub jump: Option<String>,
    /// Option of ssh, as in ssh_config(5); may be given several times
    #[arg(short = 'o', value_name = "OPTION")]
    pub options: Vec<String>,
    /// UDP ports that the far end may take, one of them is used; 0 lets its kernel choose
    #[arg(long = "port", value_name = "FIRST-LAST", default_value_t)]
    pub ports: PortRange,
    /// Fail where UDP is blocked instead of going on through ssh
    #[arg(long, conflicts_with = "ssh_only")]
    pub udp_only: bool,
    /// Go through ssh without trying UDP
    #[arg(long)]
    pub ssh_only: bool,
    /// The weft at the far end, instead of looking for one
    #[arg(long, value_name = "PATH")]
    pub remote_weft: Option<String>,
    /// Do not send this weft to a far end that has none
    #[arg(long)]
    pub no_push: bool,
}

impl SshArgs {
    /// ssh to `host`, to run `script` there by `sh`, with pipes for its streams.
    pub(crate) fn command(&self, host: &str, script: &str) -> Result<Command> {
        ensure!(!host.is_empty() && !host.starts_with('-'), "`{host}` is no host");
        let mut words = self.rsh.split_ascii_whitespace();
        let program = words.next().unwrap_or("ssh");
        let mut command = Command::new(program);
        command.args(words).arg("-T").args(self.arguments()).arg(host);
        // The login shell may be none that understands the script.
        command.arg(format!("exec sh -c {}", shell_quote(script)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(command)
    }

    /// ssh that prints its configuration for `host`.
    pub(crate) fn query(&self, host: &str) -> Command {
        let mut words = self.rsh.split_ascii_whitespace();
        let mut command = Command::new(words.next().unwrap_or("ssh"));
        command.args(words).arg("-G").args(self.arguments()).arg(host);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    fn arguments(&self) -> Vec<OsString> {
        let mut all = Vec::<OsString>::new();
        let mut add = |flag: &str, value: OsString| all.extend([flag.into(), value]);
        for option in &self.options {
            add("-o", option.into());
        }
        if let Some(port) = self.ssh_port {
            add("-p", port.to_string().into());
        }
        if let Some(file) = &self.identity {
            add("-i", file.into());
        }
        if let Some(host) = &self.jump {
            add("-J", host.into());
        }
        all
    }

    /// What starts the far end: the weft that was named, or one that is installed and speaks this
    /// protocol, or one that was sent earlier. The shell stays, and ends with the status of that:
    /// to ssh a program that a signal has killed is a connection that was lost.
    pub(crate) fn script(&self, hash: &str) -> String {
        if let Some(path) = &self.remote_weft {
            return format!("{} far-end; exit", shell_quote(path));
        }
        format!(
            "p=$(command -v weft) && [ \"$(\"$p\" far-end --protocol 2>/dev/null)\" = \
             \"{PROTOCOL}\" ] || {{ {}; [ -x \"$p\" ]; }} || {{ echo \"{MISSING} $(uname -sm)\"; \
             exit 127; }}; \"$p\" far-end; exit",
            cached(hash)
        )
    }
}

/// Sets `p` to where the weft is kept that one of this hash has sent. Machines of several kinds may
/// share a home directory.
pub(crate) fn cached(hash: &str) -> String {
    format!("d=\"${{XDG_CACHE_HOME:-$HOME/.cache}}/weft/{hash}-$(uname -m)\"; p=\"$d/weft\"")
}

/// `text` as one word for a shell.
pub fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// How ssh has ended while the channel went by UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SshEnd {
    /// Because a process at either end of it has, which may be that of the peer.
    WithProcess,
    /// It has lost its connection, or was killed: nothing speaks for the end of the peer.
    Alone,
    /// In one of these ways.
    Unclear,
}

impl SshEnd {
    /// What the status of ssh says. The script has the far shell say how the far end has ended, so
    /// 255 is ssh's own.
    pub fn of(status: ExitStatus) -> Self {
        match status.code() {
            Some(255) | None => Self::Alone,
            Some(_) => Self::WithProcess,
        }
    }
}

/// Why ssh ended before the far end spoke.
pub(crate) fn explain(host: &str, status: ExitStatus) -> String {
    match status.code() {
        Some(255) => format!("ssh did not reach {host}; its message is above"),
        Some(126 | 127) => {
            format!("{host} has no weft there: install it, or name it with --remote-weft PATH")
        }
        Some(code) => format!("what ssh started on {host} ended with status {code}"),
        None => format!("ssh to {host} was killed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_stay_one_word() {
        for text in ["", "a b", "it's", "$(reboot)", "\"x\"\n;"] {
            let script = format!("printf %s {}", shell_quote(text));
            let out = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout), text);
        }
    }

    #[test]
    fn a_host_is_never_an_option() {
        let args = SshArgs { rsh: "ssh".into(), ..SshArgs::default() };
        args.command("-oProxyCommand=reboot", "true").unwrap_err();
        args.command("", "true").unwrap_err();
    }

    #[test]
    fn options_come_before_the_host() {
        let args = SshArgs {
            rsh: "ssh -4".into(),
            ssh_port: Some(2222),
            options: vec!["BatchMode=yes".into()],
            ..SshArgs::default()
        };
        let command = args.command("me@there", "true").unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let wanted = ["-4", "-T", "-o", "BatchMode=yes", "-p", "2222", "me@there"];
        assert_eq!(words[..7], wanted);
    }
}
