//! Programs that start programs, and what the outside sees of them.

use weft_interop::{free_port, installed, start};

#[test]
fn the_children_of_a_shell_have_the_device_too() {
    if !installed("rping") {
        return;
    }
    let script = format!(
        "rping -s -a 127.0.0.1 -p {0} -C 3 & server=$!
         until rping -c -a 127.0.0.1 -p {0} -C 3 -v; do kill -0 $server || exit 9; done
         wait $server",
        free_port()
    );
    let shell = start(&["sh", "-c", &script]).wait(60);
    shell.expect_success();
    assert_eq!(shell.stdout.matches("ping data").count(), 3, "{}", shell.stdout);
}

#[test]
fn nothing_of_ours_is_on_stdout() {
    let echo = start(&["echo", "just this"]).wait(10);
    assert_eq!(echo.stdout, "just this\n");
    if installed("ibv_devices") {
        let devices = start(&["ibv_devices"]).wait(10);
        let lines: Vec<_> = devices.stdout.lines().collect();
        assert_eq!(lines.len(), 3, "two lines of heading and one device: {lines:?}");
        assert!(lines[2].contains("weft_iw0"));
        assert_eq!(devices.stderr, "");
    }
}

#[test]
fn the_device_page_is_that_of_an_rnic() {
    if !installed("ibv_devinfo") {
        return;
    }
    let page = start(&["ibv_devinfo", "-v"]).wait(10);
    page.expect_success();
    for line in ["transport:\t\t\tiWARP (1)", "PORT_ACTIVE (4)", "link_layer:\t\tEthernet"] {
        assert!(page.stdout.contains(line), "{line:?} in\n{}", page.stdout);
    }
}
