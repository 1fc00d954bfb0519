//! librdmacm's own programs for its own calls.

use weft_testkit::{Lab, free_port, pair};

fn ucmatose(lab: &Lab, options: &str) {
    let port = free_port();
    let server = lab.program("ucmatose").args(&format!("-p {port} {options}"));
    let client = server.clone().args("-s 127.0.0.1");
    let (server, client) = pair(&server, &client, port);
    server.said("return status 0");
    client.said("return status 0");
}

#[test]
fn ucmatose_makes_many_connections_at_once() {
    Lab::over_each(&["ucmatose"], |lab| {
        ucmatose(lab, "-c 100 -C 5 -S 64");
    });
}

#[test]
fn ucmatose_sends_messages_of_several_sizes() {
    Lab::over_each(&["ucmatose"], |lab| {
        for size in ["1", "1000", "100000"] {
            ucmatose(lab, &format!("-c 3 -C 20 -S {size}"));
        }
    });
}

#[test]
fn ucmatose_moves_ids_and_sets_the_type_of_service() {
    Lab::over_each(&["ucmatose"], |lab| {
        ucmatose(lab, "-c 4 -C 10 -m -t 8");
    });
}

#[test]
fn rdma_client_greets_rdma_server() {
    Lab::over_each(&["rdma_server", "rdma_client"], |lab| {
        let port = free_port();
        let server = lab.program("rdma_server").args(&format!("-p {port}"));
        let client = lab.program("rdma_client").args(&format!("-s 127.0.0.1 -p {port}"));
        let (server, client) = pair(&server, &client, port);
        server.said("rdma_server: end 0");
        client.said("rdma_client: end 0");
    });
}
