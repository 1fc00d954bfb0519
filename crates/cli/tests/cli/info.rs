//! `weft info` says who does what for each device.

use crate::common::{text, weft};

fn info(variables: &[(&str, &str)]) -> String {
    let output = weft().arg("info").envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The line of `component` in the part about `device`.
fn line<'a>(said: &'a str, device: &str, component: &str) -> &'a str {
    let part = said.split("\n\n").find(|part| part.starts_with(device)).expect(device);
    part.lines().find(|line| line.trim_start().starts_with(component)).expect(component)
}

#[test]
fn it_is_so_as_the_environment_says() {
    let usual = info(&[]);
    assert!(line(&usual, "weft_iw0, MPA over TCP", "ordering").contains("kernel"));
    assert!(line(&usual, "weft_iw0", "markers").contains("nobody"));
    assert!(line(&usual, "weft0, Shuttle", "encryption").contains("nobody"));
    assert!(line(&usual, "weft0, Shuttle", "crc").contains("CRC32C"));
    for device in ["weft0", "weft_iw0"] {
        let lane = format!("{device}, shared memory");
        assert!(line(&usual, &lane, "crc").contains("nobody"));
        assert!(!info(&[("WEFT_LANE", "off")]).contains(&lane));
    }
    let off = info(&[("WEFT_CRC", "off"), ("WEFT_MARKERS", "on")]);
    assert!(line(&off, "weft_iw0", "crc").contains("nobody"));
    assert!(line(&off, "weft_iw0", "markers").contains("layer"));
    let key = format!("weft1:{}", "7".repeat(64));
    let sealed = info(&[("WEFT_KEY", &key)]);
    for layer in ["weft0, Shuttle", "weft0, datagrams"] {
        assert!(!line(&sealed, layer, "encryption").contains("nobody"), "{sealed}");
        assert!(line(&sealed, layer, "crc").contains("tag of the cipher"), "{sealed}");
    }
    assert!(line(&sealed, "weft_iw0", "encryption").contains("nobody"));
}

#[test]
fn a_script_can_read_it() {
    let output = weft().args(["info", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for layer in json.as_array().unwrap() {
        assert_eq!(layer["components"].as_object().unwrap().len(), 8, "{layer}");
    }
}

#[test]
fn shells_complete_it() {
    let output = weft().args(["completions", "bash"]).output().unwrap();
    let words = text(&output.stdout);
    assert!(words.split_whitespace().any(|word| word == "weft,info)"), "{words}");
}

#[test]
fn hidden_devices_are_left_out_and_unknown_ones_said() {
    let run = |list| weft().arg("info").env("WEFT_DEVICES", list).output().unwrap();
    let rnic = run("weft_iw0");
    assert!(text(&rnic.stdout).starts_with("weft_iw0,") && rnic.stderr.is_empty());
    assert!(!text(&rnic.stdout).contains("weft0,"));
    let unknown = run("mlx5_0");
    assert!(unknown.stdout.is_empty());
    assert!(text(&unknown.stderr).contains("WEFT_DEVICES: no device is named mlx5_0"));
}

#[test]
fn several_devices_are_named_with_the_addresses_that_they_were_given() {
    let run = |args: &[&str]| {
        let output = weft().args(args).env("WEFT_DEVICES", "2,weft1=127.0.0.2").output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        text(&output.stdout)
    };
    let said = run(&["info"]);
    assert!(said.starts_with("weft0 weft1=127.0.0.2, Shuttle"), "{said}");
    let json: serde_json::Value = serde_json::from_str(&run(&["info", "--json"])).unwrap();
    let second = json.as_array().unwrap().iter().find(|layer| layer["device"] == "weft1").unwrap();
    assert_eq!(second["addresses"][0], "127.0.0.2");
}
