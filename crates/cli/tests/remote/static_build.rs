//! A static build for the far end's machine is what is sent there, where there is one.

use std::fs;
use std::io::Write;

use weft_testkit::text;

use crate::far_host::{FarHost, assert_same};

#[test]
fn the_static_build_is_sent_and_checked() {
    let Some(host) = FarHost::start("cp-static") else { return };
    host.dir.write("a", "content");
    fs::create_dir(host.dir.path("builds")).unwrap();
    // The same program, with other bytes: it is known by its hash.
    let name = format!("builds/weft-static-{}-linux", std::env::consts::ARCH);
    let build = host.dir.path(&name);
    fs::copy(env!("CARGO_BIN_EXE_weft"), &build).unwrap();
    fs::OpenOptions::new().append(true).open(&build).unwrap().write_all(b"static").unwrap();
    let copy = |to: &str| {
        let mut copy = host.bare("cp");
        copy.env("WEFT_STATIC", host.dir.path("builds")).args(["-q", "--port", "0", "a"]);
        copy.arg(host.far(to)).output().unwrap()
    };
    for to in ["b", "c"] {
        let sent = copy(to);
        assert!(sent.status.success(), "{}", text(&sent.stderr));
        assert_same(&host.dir.path("a"), &host.dir.path(to));
    }
    let kept: Vec<_> = fs::read_dir(host.dir.path("cache/weft")).unwrap().flatten().collect();
    assert_eq!(kept.len(), 1);
    assert_same(&kept[0].path().join("weft"), &build);
    // One that does not run there is not kept.
    fs::remove_dir_all(host.dir.path("cache")).unwrap();
    fs::write(&build, "no program").unwrap();
    let refused = copy("d");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("does not run there"), "{}", text(&refused.stderr));
    assert!(!kept[0].path().join("weft").exists());
}
