//! Arithmetic of rates: bits per second, bytes and nanoseconds.

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// The rate of `octets` in `interval_ns`; 0 for an empty interval.
pub fn bits_per_second(octets: u64, interval_ns: u64) -> u64 {
    per(octets, 8 * SECOND_NS, interval_ns)
}

/// Bytes that `rate_bps` carries in `interval_ns`.
pub fn octets_in(rate_bps: u64, interval_ns: u64) -> u64 {
    per(rate_bps, interval_ns, 8 * SECOND_NS)
}

/// Time that `octets` take at `rate_bps`; 0 at no rate, which callers rule out.
pub fn time_for_ns(octets: u64, rate_bps: u64) -> u64 {
    per(octets, 8 * SECOND_NS, rate_bps)
}

/// `a * b / c`; 0 if `c` is. Controllers ask several times for each burst, and a division of 128
/// bits costs more than all else that they do.
#[inline]
fn per(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product.checked_div(c).unwrap_or(0),
        None => {
            let quotient = (u128::from(a) * u128::from(b)).checked_div(u128::from(c));
            quotient.map_or(0, |quotient| u64::try_from(quotient).unwrap_or(u64::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_agree() {
        assert_eq!(bits_per_second(125_000_000, SECOND_NS), 1_000_000_000);
        assert_eq!(octets_in(100_000_000_000, 70_000_000), 875_000_000);
        assert_eq!(time_for_ns(1500, 12_000), SECOND_NS);
        assert_eq!(octets_in(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!((bits_per_second(1, 0), time_for_ns(1, 0)), (0, 0));
    }
}
