//! The fuzz target of what the two sides say, over mutated examples.

#[path = "../../../fuzz/src/perf.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

#[test]
fn perf_control() {
    let seeds = [
        r#"{"say":"test","test":{"version":2,"operation":"send","latency":false,"octets":65536,
            "streams":4,"up":true,"down":true,"amount":{"seconds":10.0},"omit_s":0.5,"depth":512,
            "events":false,"verify":true,"interval_s":1.0}}"#,
        r#"{"say":"ready","port":18521,"token":"00112233445566778899aabbccddeeff"}"#,
        r#"{"say":"refused","reason":"it is busy with another client"}"#,
        r#"{"say":"progress","messages":123456}"#,
        r#"{"say":"done","moved":{"streams":[1,2,3],"ramp_messages":1,"ramp_s":0.1,
            "seconds":2.5}}"#,
        r#"{"say":"verdict","checked":100,"wrong":0,"cpu_s":1.25}"#,
    ];
    let seeds: Vec<Vec<u8>> = seeds.map(|seed| seed.as_bytes().to_vec()).to_vec();
    mutate::smoke("perf_control", &seeds, 20_000, bodies::perf_control);
}
