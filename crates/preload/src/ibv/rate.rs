//! Values of `enum ibv_rate` as multiples of 2.5 Gbit/s and in Mbit/s.
//!
//! They concern no device. A machine without libibverbs has no other definition of them.

use std::ffi::c_int;

/// The value that means "as fast as the port" and stands for whatever is unknown.
const RATE_MAX: c_int = 0;

/// A rate of InfiniBand: its value in C, multiples of 2.5 Gbit/s where it is one of those that have
/// been numbered so, and its data rate in Mbit/s.
struct IbvRate(c_int, Option<c_int>, c_int);

const RATES: [IbvRate; 23] = [
    IbvRate(2, Some(1), 2_500),
    IbvRate(3, Some(4), 10_000),
    IbvRate(4, Some(12), 30_000),
    IbvRate(5, Some(2), 5_000),
    IbvRate(6, Some(8), 20_000),
    IbvRate(7, Some(16), 40_000),
    IbvRate(8, Some(24), 60_000),
    IbvRate(9, Some(32), 80_000),
    IbvRate(10, Some(48), 120_000),
    IbvRate(11, None, 14_062),
    IbvRate(12, None, 56_250),
    IbvRate(13, None, 112_500),
    IbvRate(14, None, 168_750),
    IbvRate(15, None, 25_781),
    IbvRate(16, None, 103_125),
    IbvRate(17, None, 206_250),
    IbvRate(18, None, 309_375),
    IbvRate(19, Some(11), 28_125),
    IbvRate(20, Some(20), 53_125),
    IbvRate(21, Some(160), 425_000),
    IbvRate(22, Some(240), 637_500),
    IbvRate(23, Some(320), 850_000),
    IbvRate(24, Some(480), 1_275_000),
];

fn find(wanted: impl Fn(&IbvRate) -> bool) -> Option<&'static IbvRate> {
    RATES.iter().find(|rate| wanted(rate))
}

/// `ibv_rate_to_mult`: -1 if it is not a multiple.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    find(|known| known.0 == rate).and_then(|known| known.1).unwrap_or(-1)
}

/// `mult_to_ibv_rate`.
#[unsafe(no_mangle)]
pub extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    find(|known| known.1 == Some(multiple)).map_or(RATE_MAX, |known| known.0)
}

/// `ibv_rate_to_mbps`: -1 if it is not known.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    find(|known| known.0 == rate).map_or(-1, |known| known.2)
}

/// `mbps_to_ibv_rate`.
#[unsafe(no_mangle)]
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    find(|known| known.2 == mbps).map_or(RATE_MAX, |known| known.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_come_back() {
        for IbvRate(value, multiple, mbps) in RATES {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(value)), value, "{mbps}");
            assert_eq!(ibv_rate_to_mult(value), multiple.unwrap_or(-1), "{mbps}");
        }
        assert_eq!((mult_to_ibv_rate(4), mult_to_ibv_rate(3)), (3, RATE_MAX));
        assert_eq!((ibv_rate_to_mbps(1), mbps_to_ibv_rate(1)), (-1, RATE_MAX));
    }
}
