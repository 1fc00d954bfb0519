//! Servers and callers of HTTP, and asyncio's streams.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;

use crate::common::{self, Dir, Running, dir, run};
use crate::{Ours, content, free_port, judge, path, program, same, serve, stop};

/// Has curl fetch the file from a server; gives what it said.
fn fetch(port: &str, ours: bool, copy: &Path) -> String {
    let curl = program("curl", ours).args("-sSf --retry 2 -o").arg(copy);
    run(&curl.arg(format!("http://127.0.0.1:{port}/file")))
}

/// A server of the files in `dir`.
fn file_server(dir: &Dir, port: &str, ours: bool) -> Running {
    let python = program("python3", ours).args("-m http.server --bind 127.0.0.1").arg(port);
    serve(&python.within(dir.root()), port, ours)
}

pub fn python(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("http-{ours:?}")), free_port());
    let (_, bytes) = content(&dir);
    let server = file_server(&dir, &port, ours.server());
    let copy = dir.path("copy");
    let said = fetch(&port, ours.caller(), &copy);
    same(&copy, &bytes)?;
    judge(&stop(server), &said, ours)
}

const ASYNCIO_SERVER: &str = "
import asyncio, sys
async def serve(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
";

const ASYNCIO_CALLER: &str = "
import asyncio, sys
async def call(number):
    reader, writer = await asyncio.open_connection('127.0.0.1', int(sys.argv[1]))
    sent = bytes([number]) * 300000
    writer.write(sent)
    writer.write_eof()
    assert await reader.read() == sent
    writer.close()
    await writer.wait_closed()
async def main():
    await asyncio.gather(*(call(number) for number in range(10)))
asyncio.run(main())
";

pub fn asyncio(ours: Ours) -> Result<(), Failed> {
    let port = free_port();
    let python = |ours, text: &str| program("python3", ours).words(["-c", text, &port]);
    let server = serve(&python(ours.server(), ASYNCIO_SERVER), &port, ours.server());
    let said = run(&python(ours.caller(), ASYNCIO_CALLER));
    judge(&stop(server), &said, ours)
}

const NODE_SERVER: &str = "
const http = require('http');
http.createServer((request, response) => {
  let bytes = 0;
  request.on('data', part => bytes += part.length);
  request.on('end', () => response.end(String(bytes)));
}).listen(Number(process.argv[1]), '127.0.0.1');
";

const NODE_CALLER: &str = "
const http = require('http');
const sent = Buffer.alloc(1 << 20, 7);
let left = 8;
for (let i = 0; i < 8; i++) {
  const options = { host: '127.0.0.1', port: Number(process.argv[1]), method: 'POST' };
  const request = http.request(options, response => {
    let text = '';
    response.on('data', part => text += part);
    response.on('end', () => {
      if (text !== String(sent.length)) process.exit(1);
      if (--left === 0) process.exit(0);
    });
  });
  request.end(sent);
}
";

pub fn node(ours: Ours) -> Result<(), Failed> {
    let port = free_port();
    let node = |ours, text: &str| program("node", ours).words(["-e", text, &port]);
    let server = serve(&node(ours.server(), NODE_SERVER), &port, ours.server());
    let said = run(&node(ours.caller(), NODE_CALLER));
    judge(&stop(server), &said, ours)
}

/// As it is set up mostly: a process that listens, and others that accept, of another user if this
/// one is root.
fn nginx_conf(port: &str, home: &Path) -> String {
    let home = home.display();
    let scratch = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let scratch = scratch.map(|kind| format!("{kind}_temp_path {home}/{kind};")).concat();
    format!(
        "daemon off; worker_processes 2; pid {home}/pid; error_log stderr error;
         events {{ worker_connections 128; }}
         http {{
             access_log off; sendfile on; {scratch}
             server {{ listen 127.0.0.1:{port}; root {home}; }}
         }}"
    )
}

pub fn nginx(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("nginx-{ours:?}")), free_port());
    let (_, bytes) = content(&dir);
    let conf = dir.write("conf", nginx_conf(&port, dir.root()));
    let nginx = program("nginx", ours.server()).args("-e stderr -c").arg(conf);
    let server = serve(&nginx, &port, ours.server());
    let copy = dir.path("copy");
    let said = fetch(&port, ours.caller(), &copy);
    same(&copy, &bytes)?;
    // In a second a busy machine may answer nothing.
    let mut report = String::new();
    for seconds in ["1", "10", "60"] {
        let wrk = program("wrk", ours.caller()).args("-t 1 -c 8 --timeout 100s -d").arg(seconds);
        report = run(&wrk.arg(format!("http://127.0.0.1:{port}/file")));
        if requests(&report) > 0 {
            break;
        }
    }
    judge(&stop(server), &said, ours)?;
    let errors = report.contains("Socket errors") || report.contains("Non-2xx");
    if requests(&report) > 0 && !errors { Ok(()) } else { Err(report.into()) }
}

/// Requests that were answered, as wrk reports.
fn requests(report: &str) -> u64 {
    let served = report.lines().find_map(|line| line.split_once(" requests in"));
    served.and_then(|(count, _)| count.trim().parse().ok()).unwrap_or(0)
}

const GO_SERVER: &str = r#"
package main

import ("net/http"; "os")

func main() {
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.FileServer(http.Dir("."))))
}
"#;

const GO_CALLER: &str = r#"
package main

import ("io"; "net/http"; "os")

func main() {
	response, err := http.Get("http://127.0.0.1:"+os.Args[1]+"/file")
	if err != nil { panic(err) }
	copy, err := os.Create("copy")
	if err != nil { panic(err) }
	if _, err := io.Copy(copy, response.Body); err != nil { panic(err) }
}
"#;

fn build_go(dir: &Dir, name: &str, source: &str) -> PathBuf {
    let file = dir.write(&format!("{name}.go"), source);
    let program = dir.path(name);
    let built = Command::new(path("go")).arg("build").arg("-o").args([&program, &file]).status();
    assert!(built.is_ok_and(|status| status.success()), "it is built");
    program
}

/// Programs of Go make their system calls themselves, so they go by TCP, with the library or
/// without, and whatever the other end is.
pub fn go(ours: Ours) -> Result<(), Failed> {
    let dir = dir(&format!("go-{ours:?}"));
    let (_, bytes) = content(&dir);
    let copy = dir.path("copy");
    let port = free_port();
    let go =
        |name, text, ours| common::program(&build_go(&dir, name, text), ours).within(dir.root());
    let server = serve(&go("serve", GO_SERVER, ours.server()).arg(&port), &port, false);
    let said = fetch(&port, ours.caller(), &copy);
    same(&copy, &bytes)?;
    if stop(server).contains("weft: ") {
        return Err("a server of Go is intercepted".into());
    }
    if ours.caller() {
        judge("", &said, Ours::Caller)?;
    }
    let port = free_port();
    let server = file_server(&dir, &port, ours.server());
    let said = run(&go("call", GO_CALLER, ours.caller()).arg(&port));
    same(&copy, &bytes)?;
    if said.contains("weft: ") {
        return Err("a caller of Go is intercepted".into());
    }
    let served = stop(server);
    if ours.server() { judge(&served, "", Ours::Server) } else { Ok(()) }
}
