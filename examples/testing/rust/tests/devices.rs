//! A test that needs a device.

#[test]
fn there_is_a_device() {
    assert!(testing_with_weft::device_count() > 0);
}
