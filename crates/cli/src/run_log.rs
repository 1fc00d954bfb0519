//! What `weft run` itself says on stderr: text for people or, with `WEFT_LOG_FORMAT=json`, an
//! object on each line, as the library in CMD writes them, so that one collector reads both.

use std::io::{self, Write};

use log::Level;
use weft_host::{LogFormat, abridged};
use weft_os::own_file;

/// Says what is no warning.
pub fn say(text: &str) {
    put(Level::Info, "", text);
}

/// Says what works, but not as asked.
pub fn warn(text: &str) {
    put(Level::Warn, "warning: ", text);
}

/// Says why CMD does not run.
pub fn fail(text: &str) {
    put(Level::Error, "", text);
}

/// Says lines of which some have no `weft: ` before them.
pub fn say_lines(text: &str) {
    match LogFormat::of_environment() {
        LogFormat::Text => write(text.as_bytes()),
        LogFormat::Json => {
            text.lines().for_each(|line| say(line.strip_prefix("weft: ").unwrap_or(line).trim()));
        }
    }
}

/// `label` stands before the text for people; an object has the level.
fn put(level: Level, label: &str, text: &str) {
    match LogFormat::of_environment() {
        LogFormat::Text => {
            let text = abridged(level, text);
            write(format!("weft: {label}{text}\n").as_bytes());
        }
        LogFormat::Json => LogFormat::Json.put(level, format_args!("{text}"), &[], &write),
    }
}

fn write(line: &[u8]) {
    // Without a stderr there is nobody to tell; the status alone must do.
    let _ = own_file::writing(|| io::stderr().write_all(line));
}
