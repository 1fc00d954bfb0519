//! CUBIC and BBRv1 reach what theory and the Linux kernel reach.

mod support;

use support::{outcome, plan};

/// Megabits of payload a second of one CUBIC flow at this loss, alone with it.
fn cubic_mbit(loss: &str, flows: u32, seconds: u32) -> f64 {
    let more = format!("over = \"tcp\"\nacks = \"each\"\ncount = \"{flows}\"");
    let path = format!("70ms forward:loss={loss} 10gbit");
    let outcome = outcome(&plan(&path, &format!("{seconds}s"), "30s", "cubic", &more));
    let sum: u64 = outcome.flows.iter().map(|flow| flow.payload_bps).sum();
    sum as f64 / 1e6 / f64::from(flows)
}

/// Random losses let a little more through than the formulas, which assume even ones: RFC 9438,
/// section 5.2, and Mathis et al., "The Macroscopic Behavior of the TCP Congestion Avoidance
/// Algorithm", take the larger.
#[test]
fn cubic_agrees_with_theory() {
    for (loss, flows, seconds, formula_mbit) in
        [("1%", 8, 130, 2.03), ("0.1%", 8, 130, 6.41), ("0.01%", 4, 150, 23.7)]
    {
        let ratio = cubic_mbit(loss, flows, seconds) / formula_mbit;
        assert!((1.0..1.35).contains(&ratio), "{loss}: {ratio:.2} of the formula");
    }
}

/// The kernel's figures were measured at 500 Mbit/s (Linux 6.18, one flow, 20 s, a buffer of one
/// bandwidth-delay product); as parts of the ceiling they do not depend on the rate.
#[test]
fn bbr1_agrees_with_the_kernel() {
    for (loss, kernel_mbit, ceiling) in
        [("0%", 453.0, 482.7), ("1%", 461.0, 477.9), ("5%", 438.4, 458.6), ("10%", 387.7, 434.4)]
    {
        let path = format!("70ms forward:loss={loss} 100mbit queue=1bdp");
        let plan = plan(&path, "20s", "0s", "bbr1", "over = \"tcp\"\nacks = \"each\"");
        let ratio = outcome(&plan).total.share_of_ceiling / (kernel_mbit / ceiling);
        assert!((0.95..1.05).contains(&ratio), "{loss}: {ratio:.3} of the kernel's");
    }
}
