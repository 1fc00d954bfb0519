//! Wildcards of sources at a far end, which no shell expands.

use std::fs;

use weft_testkit::text;

use crate::far_host::FarHost;

#[test]
fn the_far_end_expands_names_and_nothing_in_them_is_run() {
    let Some(host) = FarHost::start("cp-wildcards") else { return };
    fs::create_dir_all(host.dir.path("from/sub")).unwrap();
    for name in ["from/1.log", "from/2.log", "from/3.txt", "from/sub/4.log", "from/$(touch x).log"]
    {
        host.dir.write(name, name);
    }
    let names = |dir: &str| {
        let entries = fs::read_dir(host.dir.path(dir)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    host.copied(&["-q", &host.far("from/*.log"), "logs"]);
    assert_eq!(names("logs"), ["$(touch x).log", "1.log", "2.log"]);
    host.copied(&["-q", &host.far("from/[!12].txt"), "one"]);
    assert_eq!(fs::read_to_string(host.dir.path("one")).unwrap(), "from/3.txt");
    host.copied(&["-q", "-r", &host.far("fr?m/s*"), &host.far("from/?.log"), "both"]);
    assert_eq!(names("both"), ["1.log", "2.log", "sub"]);
    // Not the home directory.
    host.dir.write("~", "tilde");
    host.copied(&["-q", &host.far("~*"), "tilde"]);
    assert_eq!(fs::read_to_string(host.dir.path("tilde")).unwrap(), "tilde");
    // Nor here, where the shell has left it because it was quoted.
    host.copied(&["-q", &host.far("from/3.txt"), "~"]);
    assert_eq!(fs::read_to_string(host.dir.path("~")).unwrap(), "from/3.txt");
    let none = host.cp(&["-q", &host.far("from/*.none"), "nothing"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("*.none: No such file"), "{}", text(&none.stderr));
    assert!(!host.dir.path("x").exists());
}
