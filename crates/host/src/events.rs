//! What is written of a process into its trace, if there is one: see [`weft_capture::EventTrace`].

use std::sync::Arc;
use std::time::Duration;

use weft_capture::EventTrace;
use weft_observe::ConnReport;
use weft_os::clock::Moment;
use weft_verbs::{AsyncEvent, QpState, RecvWr, SendOp, SendWr, Sge, Wc};

use crate::diagnostics::state_name;

/// What a connection is like is written no more often than this.
const METRICS_INTERVAL: Duration = Duration::from_millis(1);

/// Where events are written, if they are.
#[derive(Clone, Default)]
pub(crate) struct Events(Option<Arc<EventTrace>>);

impl Events {
    pub fn new(trace: Option<Arc<EventTrace>>) -> Self {
        Self(trace)
    }

    /// The trace.
    pub fn trace(&self) -> Option<&Arc<EventTrace>> {
        self.0.as_ref()
    }

    /// A send was posted.
    pub fn note_send(&self, qp: u32, wr: &SendWr<'_>) {
        if let Some(trace) = &self.0 {
            let (op, bytes) = (op_name(&wr.op), length(wr.sges));
            let data = format_args!(
                "\"wr_id\":\"{:#x}\",\"opcode\":\"{op}\",\"length\":{bytes}",
                wr.wr_id
            );
            trace.event(Some(qp), "verbs:post_send", data);
        }
    }

    /// A receive was posted.
    pub fn note_recv(&self, qp: u32, wr: &RecvWr<'_>) {
        if let Some(trace) = &self.0 {
            let bytes = length(wr.sges);
            let data = format_args!("\"wr_id\":\"{:#x}\",\"length\":{bytes}", wr.wr_id);
            trace.event(Some(qp), "verbs:post_recv", data);
        }
    }

    /// The application was given these completions.
    pub fn note_completions(&self, wcs: &[Wc]) {
        let Some(trace) = &self.0 else { return };
        for wc in wcs {
            let data = format_args!(
                "\"wr_id\":\"{:#x}\",\"status\":{},\"opcode\":{},\"length\":{}",
                wc.wr_id, wc.status, wc.opcode, wc.byte_len
            );
            trace.event(Some(wc.qp_num), "verbs:completion", data);
        }
    }

    /// A queue pair has gone from one state to another.
    pub fn note_state(&self, qp: u32, from: QpState, to: QpState) {
        if let Some(trace) = &self.0 {
            let (from, to) = (state_name(from), state_name(to));
            let data = format_args!("\"old\":\"{from}\",\"new\":\"{to}\"");
            trace.event(Some(qp), "verbs:state_updated", data);
        }
    }

    /// The application was given this event.
    pub fn note_async(&self, event: &AsyncEvent) {
        if let Some(trace) = &self.0 {
            let data = format_args!("\"type\":\"{:?}\"", event.kind);
            trace.event(None, "verbs:async_event", data);
        }
    }
}

/// When a connection's numbers were written last.
#[derive(Default)]
pub(crate) struct MetricsClock(Option<Moment>);

impl MetricsClock {
    /// Whether they are due.
    pub fn is_due(&mut self, now: Moment) -> bool {
        let due = self.0.is_none_or(|last| now.saturating_duration_since(last) >= METRICS_INTERVAL);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

/// Writes what a connection is like.
pub(crate) fn note_metrics(trace: &EventTrace, report: &ConnReport) {
    let (gauges, counters) = (&report.gauges, &report.counters);
    // Before the first answer it is a guess.
    let ms = |ns: u64| if counters.packets_in > 0 { ns as f64 / 1e6 } else { 0.0 };
    let data = format_args!(
        "\"smoothed_rtt\":{},\"rtt_variance\":{},\"min_rtt\":{},\"congestion_window\":{},\
         \"bytes_in_flight\":{},\"pacing_rate\":{},\"x_lost\":{},\"x_resent\":{},\
         \"x_bytes_out\":{},\"x_bytes_in\":{},\"x_limit\":\"{}\"",
        ms(gauges.rtt_ns),
        ms(gauges.rtt_var_ns),
        ms(gauges.rtt_min_ns),
        gauges.window_bytes,
        gauges.in_flight_bytes,
        gauges.pace_bps,
        counters.lost,
        counters.resent,
        counters.bytes_out,
        counters.bytes_in,
        report.limit,
    );
    trace.event(Some(report.qpn), "recovery:metrics_updated", data);
}

fn length(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

fn op_name(op: &SendOp) -> &'static str {
    match op {
        SendOp::Send => "SEND",
        SendOp::SendInv { .. } => "SEND_WITH_INV",
        SendOp::SendImm { .. } => "SEND_WITH_IMM",
        SendOp::Write { .. } => "RDMA_WRITE",
        SendOp::AtomicWrite { .. } => "ATOMIC_WRITE",
        SendOp::WriteImm { .. } => "RDMA_WRITE_WITH_IMM",
        SendOp::Read { .. } => "RDMA_READ",
        SendOp::FetchAdd { .. } => "ATOMIC_FETCH_AND_ADD",
        SendOp::CmpSwap { .. } => "ATOMIC_CMP_AND_SWP",
        SendOp::BindMw(_) => "BIND_MW",
        SendOp::LocalInv { .. } => "LOCAL_INV",
    }
}
