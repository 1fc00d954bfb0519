//! qperf's reliable connections by rdma-cm. Its server forks for each client.

use weft_testkit::{Lab, free_port, pair};

#[test]
fn latency_and_bandwidth_of_each_verb() {
    Lab::over_each(&["qperf"], |lab| {
        let port = free_port();
        let server = lab.program("qperf").args(&format!("-lp {port}"));
        let tests = ["rc_lat", "rc_bw", "rc_bi_bw", "rc_rdma_read_bw", "rc_rdma_write_bw"];
        let client = server.clone().args("-cm 1 -t 1 -m 4096 127.0.0.1").args(&tests.join(" "));
        let (_, client) = pair(&server, &client.args("quit"), port);
        for test in tests {
            assert!(client.stdout.contains(&format!("{test}:")), "{client}");
        }
    });
}
