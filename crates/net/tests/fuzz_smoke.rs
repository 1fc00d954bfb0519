//! The fuzz target of rdma-cm's frames, over mutations of good ones.

#[path = "../../../fuzz/src/cm.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

use weft_rnic::mpa::MpaOffer;
use weft_rnic::mpa::negotiate::{Initiator, Responder};

#[test]
fn cm_frame() {
    let mut seeds = Vec::new();
    for (enhanced, private_data) in [(false, &b""[..]), (true, b"private data"), (true, &[7; 200])]
    {
        let offer =
            MpaOffer { enhanced, private_data: private_data.to_vec(), ..MpaOffer::new(8, 8) };
        let request = Initiator::new(offer.clone()).expect("it fits").request();
        let responder = Responder::handle_request(&request).expect("a good request");
        let reject = responder.reject(b"no").expect("it fits");
        let reply = responder.accept(&offer).expect("it fits").0;
        seeds.push([&[0, 6], &request[..], b"what follows"].concat());
        seeds.push([&[1, 200], &reply[..], b"what follows"].concat());
        seeds.push([&[1, 0], &reject[..]].concat());
    }
    mutate::smoke("cm_frame", &seeds, 5000, bodies::frame);
}
