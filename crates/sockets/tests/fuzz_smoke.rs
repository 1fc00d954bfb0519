//! The fuzz targets of rules and names, over mutations of good ones.

#[path = "../../../fuzz/src/sockets.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

const RULES: [&str; 3] = [
    "use tcp server nc 127.0.0.1:80",
    "use both client * 10.0.0.0/8:*; use tcp * redis* [2001:db8::]/32:1000-2000 # not there",
    "use both * * *:*\nuse tcp client ssh *:22",
];

#[test]
fn rules() {
    let seeds: Vec<Vec<u8>> = RULES.iter().map(|text| text.as_bytes().to_vec()).collect();
    mutate::smoke("rules", &seeds, 20_000, bodies::rules);
}

#[test]
fn handoff() {
    // Nothing was cut off, and the word has one byte, which is the right one.
    let start = [0, 1, 0];
    let rights = [libc::SOL_SOCKET.to_ne_bytes(), libc::SCM_RIGHTS.to_ne_bytes()].concat();
    let message = |fds: &[i32]| {
        let data: Vec<u8> = fds.iter().flat_map(|fd| fd.to_ne_bytes()).collect();
        [&(16 + data.len()).to_ne_bytes()[..], &rights, &data].concat()
    };
    let two = [&start[..], &message(&[7]), &[0; 4], &message(&[8])].concat();
    let one = |fds: &[i32]| [&start[..], &message(fds)].concat();
    let seeds = [start.to_vec(), one(&[]), one(&[7]), one(&[7, 8, 9]), two];
    mutate::smoke("handoff", &seeds, 20_000, bodies::handoff);
}

#[test]
fn socket_names() {
    let mut name = b"weft-sockets/1".to_vec();
    for version in [4, 6] {
        name.push(version);
        name.extend([0; 10]);
        name.extend([0xff, 0xff, 127, 0, 0, 1, 0, 80, 0, 0, 0, 0]);
    }
    name.extend([7; 8]);
    mutate::smoke("socket_name", &[name], 20_000, bodies::socket_name);
}
