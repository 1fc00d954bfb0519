//! The devices are there, with attributes that make sense.

use weft_testkit::Lab;

/// The value after `name:` in ibv_devinfo's list.
fn value<'a>(list: &'a str, name: &str) -> &'a str {
    let line = list.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in\n{list}")).trim()
}

fn number(list: &str, name: &str) -> u64 {
    let value = value(list, name);
    let parsed = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{name} is {value}"))
}

#[test]
fn the_devices_are_listed() {
    let Some(lab) = Lab::with(&["ibv_devices"]) else { return };
    let list = lab.program("ibv_devices").run().success().said("weft_iw0").said("weft0");
    let guid = list.stdout.lines().last().and_then(|line| line.split_whitespace().nth(1));
    assert!(guid.is_some_and(|guid| guid.len() == 16 && guid.bytes().any(|b| b != b'0')), "{list}");
}

#[test]
fn their_attributes_make_sense() {
    let Some(lab) = Lab::with(&["ibv_devinfo"]) else { return };
    for (name, transport) in [("weft0", "InfiniBand (0)"), ("weft_iw0", "iWARP (1)")] {
        let args = format!("-v -d {name}");
        let list = lab.program("ibv_devinfo").args(&args).run().success().stdout;
        assert_eq!(value(&list, "hca_id"), name);
        assert_eq!(value(&list, "transport"), transport);
        check_attributes(&list);
    }
}

fn check_attributes(list: &str) {
    assert_eq!(value(list, "link_layer"), "Ethernet");
    assert_eq!(value(list, "state"), "PORT_ACTIVE (4)");
    assert_ne!(number(list, "vendor_id"), 0);
    assert_eq!(value(list, "node_guid").len(), 19);
    let at_least = [
        ("max_mr_size", 1 << 40),
        ("page_size_cap", 4096),
        ("max_qp", 1024),
        ("max_qp_wr", 16 << 10),
        ("max_sge", 6),
        ("max_cqe", 4 << 20),
        ("max_mr", 1024),
        ("max_pd", 1024),
        ("max_qp_rd_atom", 16),
        ("max_srq_wr", 1024),
        ("max_pkeys", 1),
        ("gid_tbl_len", 2),
        ("num_comp_vectors", 1),
        ("max_msg_sz", 1 << 30),
    ];
    for (name, least) in at_least {
        assert!(number(list, name) >= least, "{name} in\n{list}");
    }
}

#[test]
fn several_devices_are_as_several_adapters() {
    let Some(lab) = Lab::with(&["ibv_devices", "ibv_devinfo"]) else { return };
    let run = |program: &str, args: &str| {
        lab.program(program).args(args).env("WEFT_DEVICES", "4").run().success().stdout
    };
    let listed = run("ibv_devices", "");
    let named = |line: &str| line.trim_start().starts_with("weft").then(|| line.to_owned());
    let lines: Vec<String> = listed.lines().filter_map(named).collect();
    let mut guids: Vec<_> =
        lines.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    guids.sort_unstable();
    guids.dedup();
    assert_eq!((lines.len(), guids.len()), (4, 4), "{listed}");
    let shown = run("ibv_devinfo", "-v -d weft2");
    assert_eq!(value(&shown, "hca_id"), "weft2");
    check_attributes(&shown);
}

#[test]
fn scanners_see_several_devices() {
    let Some(lab) = Lab::with(&["ucx_info", "fi_info"]) else { return };
    let run = |program: &str, args: &str| {
        let program = lab.program(program).args(args);
        program.env("WEFT_DEVICES", "weft0,weft1,weft_iw0").run().success().stdout
    };
    let ucx = run("ucx_info", "-d");
    assert!(["weft0:1", "weft1:1"].iter().all(|name| ucx.contains(name)), "{ucx}");
    let libfabric = run("fi_info", "-p verbs");
    for domain in ["weft0", "weft1", "weft_iw0"] {
        assert!(libfabric.contains(&format!("domain: {domain}")), "{libfabric}");
    }
}

#[test]
fn weft_off_is_the_machine_as_it_is() {
    let Some(lab) = Lab::with(&["ibv_devices"]) else { return };
    let bare = lab.program("ibv_devices").on_its_own().run();
    let off = lab.program("ibv_devices").env("WEFT", "off").run();
    assert_eq!((off.status, &off.stdout), (bare.status, &bare.stdout));
    assert!(!off.stdout.contains("weft_iw0"));
}
