//! The fuzz target of plans, over mutated examples.

#[path = "../../../fuzz/src/fault.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

#[test]
fn fault_plan() {
    let seeds = [
        "qp-error:after=1000,status=rem-access,only=2; seed=7",
        "qp-error=0.1%; drop=1%:way=in; corrupt=0.01%",
        "rnr:3,after=100; cq-overflow:after=9; peer-gone:at=2s",
        "fail=reg_mr:errno=ENOMEM,after=3,times=2; delay=5ms:jitter=100us",
        "device-fatal=1s:at=2s,dev=weft0; slow-ack=5ms:at=1s,until=2s,qpn=0x11",
        "mr-invalid:at=1s,only=2; alloc-fail=any:nth=3; corrupt=1%:crc=good,process=ib_*,rank=1",
    ];
    let seeds: Vec<Vec<u8>> = seeds.map(|seed| seed.as_bytes().to_vec()).to_vec();
    mutate::smoke("fault_plan", &seeds, 20_000, bodies::fault_plan);
}
