//! Rate control: pacing rate and window of a path.
//!
//! A [`Controller`] belongs to one path (or to one stream that asked for its own). It never sees
//! the connection: it is told what happened and answers two numbers. Time is an argument, and
//! whatever it draws at random comes from [`Params::seed`].
//!
//! Units: times are nanoseconds of one clock, sizes are bytes of UDP payload, rates are bits of
//! UDP payload per second.

mod bbr1;
pub(crate) mod controller;
mod cubic;
mod fixed;
mod max_filter;
mod none;
pub(crate) mod rate;
mod weave;

pub use bbr1::Bbr1;
pub use controller::{
    Acked, Controller, Ecn, Lost, Make, Params, RateSample, Rtt, Saved, Sent, Spurious,
};
pub use cubic::Cubic;
pub use fixed::Fixed;
pub use none::Unlimited;
pub use rate::{SECOND_NS, bits_per_second, octets_in, time_for_ns};
pub use weave::Weave;

/// Makes `none`: no limit.
pub fn none(params: &Params) -> Box<dyn Controller> {
    Box::new(Unlimited::new(params))
}

/// Makes `fixed`: a constant rate.
pub fn fixed(params: &Params) -> Box<dyn Controller> {
    Box::new(Fixed::new(params))
}

/// Makes `cubic`: RFC 9438.
pub fn cubic(params: &Params) -> Box<dyn Controller> {
    Box::new(Cubic::new(params))
}

/// Makes `bbr1`: the first BBR.
pub fn bbr1(params: &Params) -> Box<dyn Controller> {
    Box::new(Bbr1::new(params))
}

/// Makes `weave`: the path's delivery rate, tolerant of random loss.
pub fn weave(params: &Params) -> Box<dyn Controller> {
    Box::new(Weave::new(params))
}

/// Constructor of the module `name`, as spelled in `weft run --shuttle cc=NAME`.
pub fn by_name(name: &str) -> Option<Make> {
    let (_, make) = MODULES.into_iter().find(|(module, _)| *module == name)?;
    Some(make)
}

/// All modules by name.
const MODULES: [(&str, Make); 5] =
    [("none", none), ("fixed", fixed), ("cubic", cubic), ("bbr1", bbr1), ("weave", weave)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_answer_to_their_names() {
        for (name, make) in MODULES {
            assert_eq!(make(&Params::default()).name(), name);
            assert!(by_name(name).is_some());
        }
        assert!(by_name("magic").is_none());
    }
}
