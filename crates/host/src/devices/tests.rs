//! Tests of [`super::Devices`].

use super::*;

fn read(set: &[(&str, &str)]) -> Devices {
    Devices::read(|name| {
        let found = set.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn listed(list: &str) -> Devices {
    read(&[("WEFT_DEVICES", list)])
}

fn names(devices: &Devices) -> Vec<&str> {
    devices.visible().iter().map(|device| devices.name(*device)).collect()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const BOTH: [DeviceKind; 2] = [DeviceKind::Roce, DeviceKind::Iwarp];

#[test]
fn both_are_visible_unless_the_list_says_otherwise() {
    for set in [&[][..], &[("WEFT_DEVICES", "")], &[("WEFT_DEVICES", "weft_iw0, weft0")]] {
        let devices = read(set);
        assert_eq!(devices.visible(), BOTH.map(DeviceId::from));
        assert!(devices.complaints().is_empty());
        assert_eq!(devices.transport(CmTransport::Auto), CmTransport::Auto);
    }
}

#[test]
fn a_list_hides_the_other_device_and_its_transport() {
    let one = listed("weft0");
    assert_eq!(one.visible(), [DeviceKind::Roce.into()]);
    assert_eq!(one.transport(CmTransport::Auto), CmTransport::Shuttle);
    let one = read(&[("WEFT_DEVICES", "weft_iw0"), ("WEFT_TRANSPORT", "shuttle")]);
    assert_eq!(one.visible(), [DeviceKind::Iwarp.into()]);
    assert_eq!(one.transport(CmTransport::Shuttle), CmTransport::Iwarp);
    assert!(one.complaints()[0].contains("weft0, which WEFT_DEVICES hides"));
    let named = read(&[("WEFT_DEVICES", "mlx5_7"), ("WEFT_DEV", "mlx5_7")]);
    assert_eq!(named.visible(), [DeviceKind::Roce.into()]);
}

#[test]
fn an_unknown_name_is_said_and_hides_nothing_by_itself() {
    let some = listed("weft0,mlx5_0");
    assert_eq!(some.visible(), [DeviceKind::Roce.into()]);
    assert_eq!(some.complaints().len(), 1);
    assert!(some.complaints()[0].contains("mlx5_0; there are weft0 and weft_iw0"));
    let none = listed("mlx5_0");
    assert!(none.visible().is_empty());
    assert_eq!(none.complaints().len(), 2);
}

#[test]
fn a_number_is_that_of_adapters() {
    let four = listed("4");
    assert_eq!(names(&four), ["weft0", "weft1", "weft2", "weft3"]);
    assert!(four.complaints().is_empty());
    let named = read(&[("WEFT_DEVICES", "3,weft_iw0"), ("WEFT_DEV", "mlx5_1")]);
    assert_eq!(names(&named), ["mlx5_1", "mlx5_2", "mlx5_3", "weft_iw0"]);
    let named = read(&[("WEFT_DEVICES", "2"), ("WEFT_DEV", "nic")]);
    assert_eq!(names(&named), ["nic", "nic1"]);
    for bad in ["0", "17", "99999999999999999999999"] {
        let devices = listed(bad);
        assert!(devices.visible().is_empty(), "{bad}");
        assert!(devices.complaints()[0].contains("from 1 to 16"), "{bad}");
    }
}

#[test]
fn a_transport_gives_any_name_to_a_device() {
    let devices = listed("hfi1:iwarp,mlx5_0:shuttle,weft0,mlx5_1:shuttle");
    assert_eq!(names(&devices), ["weft0", "mlx5_0", "mlx5_1", "hfi1"]);
    let indices: Vec<usize> = devices.visible().iter().map(|device| device.index()).collect();
    assert_eq!(indices, [0, 1, 2, 0]);
    assert!(devices.complaints().is_empty());
    // A number is that of the name, whichever others are there.
    assert_eq!(listed("weft3").visible(), [DeviceId::new(DeviceKind::Roce, 3)]);
}

#[test]
fn addresses_belong_to_the_device_that_is_given_them() {
    let devices = listed("3,weft1=10.0.0.2+fd00::2,weft2=127.0.0.2");
    let at = |text| devices.at(DeviceKind::Roce, address(text)).map(|id| devices.name(id));
    for (text, name) in [
        ("10.0.0.1", "weft0"),
        ("10.0.0.2", "weft1"),
        ("::ffff:10.0.0.2", "weft1"),
        ("fd00::2", "weft1"),
        ("127.0.0.2", "weft2"),
        ("127.0.0.1", "weft0"),
    ] {
        assert_eq!(at(text), Some(name), "{text}");
    }
    assert!(!devices.serves(DeviceKind::Roce.into(), address("10.0.0.2")));
    let given = listed("weft0=10.0.0.1,weft1=10.0.0.2,weft_iw0=10.0.0.3");
    assert_eq!(given.at(DeviceKind::Roce, address("10.0.0.9")), None);
    assert_eq!(given.at(DeviceKind::Roce, address("127.0.0.1")), Some(DeviceKind::Roce.into()));
    let by = |wanted, text| given.transport_at(wanted, address(text));
    assert_eq!(by(CmTransport::Auto, "10.0.0.1"), Some(CmTransport::Shuttle));
    assert_eq!(by(CmTransport::Auto, "10.0.0.3"), Some(CmTransport::Iwarp));
    assert_eq!(by(CmTransport::Shuttle, "10.0.0.3"), None);
    assert_eq!(by(CmTransport::Auto, "10.0.0.9"), None);
    assert_eq!(by(CmTransport::Auto, "0.0.0.0"), Some(CmTransport::Auto));
}

#[test]
fn what_has_no_meaning_is_said_and_left_out() {
    let long = "x".repeat(10_000);
    for (bad, word) in [
        ("weft1=10.0.0", "10.0.0 is no IP address for weft1"),
        ("weft1=", "nothing is no IP address"),
        ("weft1=0.0.0.0", "0.0.0.0 is no IP address"),
        ("weft1=224.0.0.1", "no IP address"),
        ("weft1:tcp", "tcp is no transport of weft1"),
        ("a/b:shuttle", "a/b is no name of a device"),
        (":iwarp", "nothing is no name"),
        ("\u{1b}[2J", "\\u{1b}[2J is no name"),
        ("weft16", "no device is named weft16"),
        ("weft0=10.0.0.7", "10.0.0.7 is given to weft5 and to weft0"),
        ("weft5:iwarp", "two devices are named weft5"),
        (&long, "xxx... is no name"),
    ] {
        let devices = listed(&format!("weft5=10.0.0.7,{bad}"));
        assert_eq!(names(&devices), ["weft5"], "{bad}");
        assert!(devices.complaints()[0].contains(word), "{:?}", devices.complaints());
        assert!(devices.complaints()[0].len() < 300);
    }
    let many = listed(&"?,".repeat(10_000));
    assert!(many.complaints().len() < 20);
    let names: Vec<String> = (0..20).map(|n| format!("n{n}:shuttle")).collect();
    let full = listed(&names.join(","));
    assert_eq!(full.visible().len(), DEVICES_MAX);
    assert!(full.complaints()[0].contains("one device too many"));
}

#[test]
fn device_names_are_short_and_plain() {
    assert_eq!(read(&[("WEFT_DEV", "siw0")]).name(DeviceKind::Roce), "siw0");
    for bad in ["", "a/b", "a b", "weft_iw0", "weft_iw3", &"x".repeat(64)] {
        let devices = read(&[("WEFT_DEV", bad)]);
        assert_eq!(devices.name(DeviceKind::Roce), "weft0", "{bad}");
        assert_eq!(devices.complaints().len(), 1, "{bad}");
    }
}
