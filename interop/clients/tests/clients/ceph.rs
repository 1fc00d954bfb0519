//! Ceph: a cluster of one monitor and one storage daemon whose messages go by verbs alone.

use std::net::IpAddr;

use weft_testkit::{Ended, IWARP, Lab, Program, Running, free_port, own_address};

use crate::{Client, counted, debian, operations};

pub const CEPH: Client = Client {
    name: "Ceph",
    version: || debian("ceph-osd"),
    does: "a cluster of two daemons, and `rados bench` that writes objects and checks them",
    refuses: None,
    run: |lab| {
        if ["ceph-mon", "ceph-osd", "ceph-common"].iter().any(|name| debian(name).is_none()) {
            weft_testkit::skip("no Ceph: scripts/deps.sh ceph-mon ceph-osd ceph-common");
            return None;
        }
        let cluster = Cluster::start(lab, own_address()?);
        let write = cluster.bench(lab, "write --no-cleanup -b 65536");
        let read = cluster.bench(lab, "seq");
        cluster.alive();
        Some(operations(lab, write) + operations(lab, read))
    },
};

const CLUSTER: &str = "6b2d7ed0-1d3c-4a6e-9d0e-6a0f1f0a7c11";
const DISK: &str = "0c3c5c0e-2f5e-4a39-8a2e-0d1c7b1f6a55";

/// Its daemons, which are killed when it is dropped: nothing of it is kept.
struct Cluster {
    monitor: Running,
    storage: Running,
}

impl Cluster {
    fn start(lab: &Lab, address: IpAddr) -> Self {
        let port = free_port();
        lab.write("ceph.conf", settings(lab, address, port));
        for directory in ["mon", "osd"] {
            std::fs::create_dir(lab.path(directory)).expect("the lab's directory is writable");
        }
        let map = lab.program("monmaptool").on_its_own().args("--create monmap --fsid");
        let map = map.arg(CLUSTER).args(&format!("--addv a [v2:{address}:{port}]"));
        map.run().success();
        tool(lab, "ceph-mon").args("-i a --mkfs --monmap monmap").run().success();
        let monitor = tool(lab, "ceph-mon").args("-i a -f").start().listening(port);
        // Waits for the monitor.
        counted(tool(lab, "ceph")).args("osd new").arg(DISK).run().success();
        let make = tool(lab, "ceph-osd").args("-i 0 --mkfs --osd-uuid").arg(DISK);
        make.run().success();
        let storage = tool(lab, "ceph-osd").args("-i 0 -f").start();
        counted(tool(lab, "ceph")).args("osd pool create bench 8").run().success();
        Self { monitor, storage }
    }

    /// Waits for the storage daemon, and what it reads it compares with what it wrote.
    fn bench(&self, lab: &Lab, what: &str) -> Ended {
        let rados = counted(tool(lab, "rados")).args("-p bench bench 2").args(what).args("-t 4");
        rados.run().success().said("Average IOPS")
    }

    fn alive(self) {
        for daemon in [self.monitor, self.storage] {
            assert!(!daemon.ends_within(std::time::Duration::ZERO), "{}", daemon.end());
        }
    }
}

/// One of Ceph's programs, for this cluster.
fn tool(lab: &Lab, name: &str) -> Program {
    lab.program(name).args("-c ceph.conf")
}

/// Objects are kept in memory, nobody has to show who he is, and the buffers are fewer than the
/// 4 GB of the default. On an RNIC its messenger connects by rdma-cm.
fn settings(lab: &Lab, address: IpAddr, port: u16) -> String {
    let home = lab.path("");
    let home = home.display();
    let (by_cm, kind) = match lab.transport() {
        Some(IWARP) => (true, "iwarp"),
        _ => (false, "ib"),
    };
    format!(
        "[global]\nfsid = {CLUSTER}\nmon_host = v2:{address}:{port}\nmon_initial_members = a\n\
         public_addr = {address}\nms_type = async+rdma\n\
         ms_async_rdma_device_name = {device}\nms_async_rdma_cm = {by_cm}\n\
         ms_async_rdma_type = {kind}\nms_async_rdma_receive_buffers = 1024\n\
         ms_async_rdma_receive_queue_len = 256\nms_async_rdma_send_buffers = 512\n\
         auth_cluster_required = none\nauth_service_required = none\n\
         auth_client_required = none\nosd_pool_default_size = 1\n\
         osd_pool_default_min_size = 1\nmon_allow_pool_size_one = true\n\
         osd_crush_chooseleaf_type = 0\nosd_objectstore = memstore\n\
         memstore_device_bytes = 1073741824\nrun_dir = {home}\n\
         admin_socket = {home}/$name.$pid.asok\nlog_file = {home}/$name.log\npid_file =\n\
         mon_data = {home}/mon\nosd_data = {home}/osd\n",
        device = lab.device(),
    )
}

#[test]
#[ignore = "scripts/deps.sh ceph-mon ceph-osd ceph-common"]
fn a_cluster_stores_objects() {
    CEPH.holds();
}
