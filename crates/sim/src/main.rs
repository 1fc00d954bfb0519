fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let plan = weft_sim::plan::Plan::parse(&text).unwrap();
    for run in plan.runs().unwrap() {
        let t = std::time::Instant::now();
        let o = weft_sim::run::simulate(&run, |_| ()).unwrap();
        let w = t.elapsed().as_secs_f64();
        print!("{}: {:.4} t50 {:?} t90 {:?} q {:.2}/{:.2} ms drops {} rs/l {:?} {:.1} Mev/s wall {:.1}", o.name, o.total.share_of_ceiling,
            o.total.t50_ns.map(|x| x / 1000000), o.total.t90_ns.map(|x| x / 1000000), o.links[0].queue_mean_ns as f64 / 1e6,
            o.links[0].queue_p99_ns as f64 / 1e6, o.links[0].counters.dropped_queue, o.total.resent_per_loss.map(|x| (x*1000.0).round()/1000.0), o.events as f64 / w / 1e6, w);
        for g in &o.groups { print!(" | {} share {:.3} jain {:.3} pay {:.2}", g.controller, g.share, g.jain,
            o.flows.iter().filter(|f| f.controller == g.controller).map(|f| f.payload_bps as f64).sum::<f64>() / 1e6 / g.flows as f64); }
        println!();
        if std::env::args().nth(2).is_some() { for (i, t) in o.curves.at_ns.iter().enumerate() { 
          print!("{:.3}", *t as f64/1e9); for f in &o.curves.flows { print!("  {:.1} {:.2} {}", f.rate_bps[i] as f64/1e6, f.rtt_ns[i] as f64/1e6, f.in_flight_octets[i]/1500) } println!("  q {:.2}", o.curves.queue_ns[0][i] as f64/1e6); } }
    }
}
