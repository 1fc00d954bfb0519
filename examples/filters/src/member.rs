//! A filter in a process of its own.
//!
//! The first one asks; each other one listens, takes the one before it, and only then calls the one
//! after it. So the processes may be started in any order, but for the first, which comes last; and
//! the whole chain is there before it asks.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use clap::Args;

use crate::chain::{ChainMeter, FilterStage, UnitSink, ask};
use crate::failure::FilterFailure;
use crate::report::GroupReport;
use crate::stream::{Downstream, StreamHello, Upstream};
use crate::{Filter, FilterProgram, GroupQuery};

/// Where the ends of a filter's streams are.
#[derive(Clone, Debug, Args)]
pub struct StreamAddrs {
    /// Where to wait for the filter before this one; all but the first have one
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,

    /// Where the filter after this one waits; all but the last have one
    #[arg(long, value_name = "HOST:PORT")]
    pub to: Option<String>,

    /// The process that `run` started: tells its address on stdout, and ends with stdin
    #[arg(long, hide = true)]
    pub launched: bool,
}

/// A filter that is to run here.
pub(crate) struct GroupMember<'a> {
    pub program: &'a FilterProgram,
    /// Its place in the program.
    pub index: usize,
    pub ends: &'a StreamAddrs,
    pub filter: Box<dyn Filter>,
}

impl GroupMember<'_> {
    fn name(&self) -> &'static str {
        self.program.filters[self.index]
    }

    /// Runs the first filter of a group, which asks it.
    pub fn ask(self, asked: &GroupQuery) -> Result<GroupReport> {
        let name = self.name();
        let mut stage = self.stage(asked).map_err(|error| FilterFailure::of(name, error))?;
        let result = ask(&mut stage, asked);
        if let Err(error) = &result {
            stage.fail(&error.to_string());
        }
        result
    }

    /// Runs another one, until the group has finished.
    pub fn serve(self) -> Result<GroupReport> {
        let name = self.name();
        let (mut stream, hello) = self.caller().map_err(|error| FilterFailure::of(name, error))?;
        let asked = GroupQuery { query: Vec::new(), times: 0, unit: hello.unit };
        let result = self.pump(&mut stream, &asked).map_err(|error| FilterFailure::of(name, error));
        stream.answer(&result);
        result
    }

    fn caller(&self) -> Result<(Upstream, StreamHello)> {
        let address = self.ends.listen.context("--listen says where to wait")?;
        let about = || format!("listening at {address}");
        let listener = TcpListener::bind(address).with_context(about)?;
        self.tell(listener.local_addr()?)?;
        let come = Arc::new(AtomicBool::new(false));
        if self.ends.launched {
            leave_with_launcher(Arc::clone(&come));
        }
        let before = self.program.filters[self.index - 1];
        let caller = Upstream::accept(&listener, self.program.name, before)?;
        come.store(true, Ordering::Relaxed);
        Ok(caller)
    }

    /// Tells whoever started this where it can be reached.
    fn tell(&self, address: SocketAddr) -> Result<()> {
        if self.ends.launched {
            println!("{address}");
            return std::io::stdout().flush().context("telling the address");
        }
        eprintln!("{}: {} waits at {address}", self.program.name, self.name());
        Ok(())
    }

    fn pump(self, stream: &mut Upstream, asked: &GroupQuery) -> Result<GroupReport> {
        let name = self.name();
        let mut stage = self.stage(asked)?;
        let result = stream.ready().and_then(|()| stream.pump(&mut stage));
        let result = result.map_err(|error| FilterFailure::of(name, error));
        if let Err(error) = &result {
            stage.fail(&format!("{error:#}"));
        }
        result
    }

    /// The filter, with the way to the next one behind it.
    fn stage(self, asked: &GroupQuery) -> Result<FilterStage> {
        let name = self.name();
        let next: Box<dyn UnitSink> = match self.program.filters.get(self.index + 1) {
            None => Box::new(ChainMeter::new(self.program.name, asked)),
            Some(after) => {
                let to = self.ends.to.as_ref();
                let to = to.with_context(|| format!("--to says where {after} is"))?;
                let program = self.program.name.into();
                let hello = StreamHello { program, from: name.into(), unit: asked.unit };
                Box::new(Downstream::connect(to, after, &hello)?)
            }
        };
        Ok(FilterStage::new(name, self.filter, asked, next))
    }
}

/// Ends this process when its launcher does, or lets go of it, unless the caller has come: from
/// then on the streams tell.
fn leave_with_launcher(come: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        // However this ends, nobody holds the other end any more.
        let _ = std::io::stdin().read(&mut [0]);
        if !come.load(Ordering::Relaxed) {
            std::process::exit(crate::command::ELSEWHERE.into());
        }
    });
}
