//! `weft run`: the environment is decided, then this process becomes CMD, or watches it.
//!
//! Order: [`run`] warns, plans and executes; if it becomes CMD it comes back only with a failure.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;

use anyhow::{Context, Error, Result};
use weft_fault::FaultPlan;
use weft_net::secrecy::read_key;

use crate::args::{Level, RunOptions};
use crate::program::Executable;
use crate::scenario::{self, Expectations, ExpectedExit, ScenarioFile, ScenarioManner};
use crate::watch::Watch;
use crate::{OUR_FAILURE, capture, library, preload, run_log, stubs, sys, variables};

const PRELOAD: &str = "LD_PRELOAD";
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const PASSTHROUGH: &str = "WEFT_PASSTHROUGH";
/// Limits a seed to a length that can be typed.
const SEED_SHIFT: u32 = 40;

/// Reason why CMD does not run.
#[derive(Debug)]
pub struct RunFailure {
    /// Exit status: 125 to 127, as `env` has them.
    pub status: u8,
    /// The reason.
    pub error: Error,
}

/// Becomes CMD; or runs it and gives its status, where its traffic is asked for.
///
/// # Errors
/// Reason why CMD does not run.
pub fn run(options: &RunOptions) -> Result<u8, RunFailure> {
    let mut environment = Environment::of_this_process();
    if let Some(level) = options.log {
        environment.set("WEFT_LOG", level.name().into());
    }
    if options.passthrough {
        environment.set(PASSTHROUGH, "1".into());
    }
    if options.verbose {
        environment.set("WEFT_SOCKETS_VERBOSE", "on".into());
    }
    if let Err(error) = environment.prepare(options) {
        return Err(RunFailure { status: OUR_FAILURE, error });
    }
    plan_faults(options, &mut environment)
        .map_err(|error| RunFailure { status: OUR_FAILURE, error })?;
    let ours = |error| RunFailure { status: OUR_FAILURE, error };
    if let Some(pcap) = &options.pcap {
        let spec = capture::make_room(pcap).map_err(ours)?;
        environment.set("WEFT_PCAP", spec);
    }
    if let Some(trace) = &options.trace {
        let path = capture::make_room_for_trace(trace).map_err(ours)?;
        environment.set("WEFT_TRACE", path);
    }
    if options.scenario.is_some() || options.fuzz_faults.is_some() {
        return judge(options, &environment);
    }
    if let Some(watch) = Watch::wanted(options, &mut environment).map_err(ours)? {
        let end = sys::spawn(&options.command, &environment.0)
            .and_then(|child| child.wait())
            .map_err(|error| failure(options, error))?;
        return Ok(watch.conclude(end));
    }
    Err(failure(options, sys::exec(&options.command, &environment.0)))
}

/// Runs CMD under a scenario, or under random plans, and judges it.
fn judge(options: &RunOptions, environment: &Environment) -> Result<u8, RunFailure> {
    let ours = |error| RunFailure { status: OUR_FAILURE, error };
    let file = options.scenario.as_deref().map(ScenarioFile::read).transpose().map_err(ours)?;
    // An error of starting CMD is CMD's, as without a scenario.
    let started = |error: Error| match error.downcast::<io::Error>() {
        Ok(error) => failure(options, error),
        Err(error) => ours(error),
    };
    if let Some(seeds) = options.fuzz_faults {
        // Programs may fail under a random fault; they may not crash or hang.
        let lenient = Expectations { exit: ExpectedExit::ByItself, ..Expectations::default() };
        let expect = file.map_or(lenient, |file| file.expect);
        return scenario::fuzz(&options.command, environment, seeds, &expect).map_err(started);
    }
    let Some(ScenarioFile { name, mut plan, expect }) = file else { return Ok(OUR_FAILURE) };
    options.fault.iter().cloned().for_each(|more| plan.add(more));
    environment.check_passthrough(&plan).map_err(ours)?;
    let plan = plan.seeded(RandomState::new().hash_one(0) >> SEED_SHIFT);
    run_log::say(&format!("scenario {name}: {plan}"));
    let manner = ScenarioManner::default();
    let outcome = scenario::run_scenario(&options.command, environment, &plan, &expect, manner)
        .map_err(started)?;
    outcome.print(&name, &plan, options.json);
    Ok(u8::from(!outcome.is_ok()))
}

/// Becomes `command`, as `weft run` would, with these variables besides. Comes back only with the
/// reason why not.
pub fn become_with(command: Vec<OsString>, variables: Vec<(&'static str, String)>) -> RunFailure {
    let mut environment = Environment::of_this_process();
    for (name, value) in variables {
        environment.set(name, value.into());
    }
    let options = RunOptions { command, ..RunOptions::default() };
    match environment.prepare(&options) {
        Ok(()) => failure(&options, sys::exec(&options.command, &environment.0)),
        Err(error) => RunFailure { status: OUR_FAILURE, error },
    }
}

/// Prints the plan of faults and its seed, so that the run can be repeated; all programs of the run
/// have the same seed.
///
/// # Errors
/// A fault cannot be made with passthrough.
fn plan_faults(options: &RunOptions, environment: &mut Environment) -> Result<()> {
    // A scenario has them in its own plan.
    if options.fault.is_empty() || options.scenario.is_some() {
        return Ok(());
    }
    let mut plan = FaultPlan::default();
    options.fault.iter().cloned().for_each(|more| plan.add(more));
    environment.check_passthrough(&plan)?;
    let plan = plan.seeded(RandomState::new().hash_one(0) >> SEED_SHIFT);
    run_log::say(&format!("going wrong on purpose: {plan}"));
    environment.set("WEFT_FAULT", plan.to_string().into());
    Ok(())
}

fn failure(options: &RunOptions, error: io::Error) -> RunFailure {
    let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    let name = options.command[0].display();
    // The system says the same of a program and of what is to run it.
    let path = Path::new(&options.command[0]);
    let is_there = path.components().count() > 1 && path.is_file();
    let what = match is_there && status == 127 {
        true => format!("cannot run {name}: the interpreter or the dynamic linker that it names"),
        false => format!("cannot run {name}"),
    };
    RunFailure { status, error: Error::from(error).context(what) }
}

/// Paths of `weft wan` stay on this machine, so no key is needed.
pub fn allow_clear_text() {
    let decided = ["WEFT_KEY", "WEFT_INSECURE"].iter().any(|name| std::env::var_os(name).is_some());
    if !decided {
        sys::set_variable(c"WEFT_INSECURE", c"1");
    }
}

/// The environment that CMD will have, in the order that ours has.
#[derive(Clone)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    fn of_this_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// Every variable with its value.
    pub fn all(&self) -> &[(OsString, OsString)] {
        &self.0
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: OsString) {
        self.0.retain(|(key, _)| key != name);
        self.0.push((name.into(), value));
    }

    fn remove(&mut self, name: &str) {
        self.0.retain(|(key, _)| key != name);
    }

    /// Puts the library before CMD, or takes it away if Weft is switched off.
    fn prepare(&mut self, options: &RunOptions) -> Result<()> {
        self.check_variables();
        let existing = self.get(PRELOAD).unwrap_or_default().to_owned();
        if variables::switched_off(self.get("WEFT")) {
            match preload::without(&existing) {
                rest if rest.is_empty() => self.remove(PRELOAD),
                rest => self.set(PRELOAD, rest),
            }
            return Ok(());
        }
        match self.get("WEFT_KEY") {
            // As of `WEFT_KEY=$(cat FILE)` where that file is missing.
            Some(value) if value.is_empty() => self.warn("WEFT_KEY is empty: there is no key"),
            Some(value) => drop(read_key(value)?),
            None => {}
        }
        let given = self.get("WEFT_LIB").filter(|path| !path.is_empty()).map(Path::new);
        let own = std::env::current_exe().context("finding weft itself")?;
        let own_dir = own.parent().unwrap_or(Path::new("/"));
        let library = if options.sockets {
            library::find(library::SOCKETS, options.lib.as_deref(), own_dir)?
        } else {
            library::find(library::VERBS, options.lib.as_deref().or(given), own_dir)?
        };
        let program = Executable::find(&options.command[0], self.get("PATH"));
        self.warn_of_obstacle(program.as_ref());
        let sanitizer = program.as_ref().and_then(Executable::sanitizer);
        let list = preload::with(&existing, &library, sanitizer.as_deref())?;
        self.set(PRELOAD, list);
        // What passes through needs the libraries themselves.
        if !options.sockets && !self.passes_through() {
            self.supply_stubs(&library, program.as_ref());
        }
        Ok(())
    }

    /// Warns about variables without effect, once: variables with a wrong value are unset for CMD,
    /// and `WEFT_UNKNOWN` names the others, so that the library in CMD is silent about both.
    fn check_variables(&mut self) {
        let mut unknown = Vec::new();
        for warning in variables::warnings(&self.0) {
            self.warn(&warning.text);
            if warning.is_known {
                self.remove(&warning.name);
            } else {
                unknown.push(warning.name);
            }
        }
        if !unknown.is_empty() {
            self.set(variables::UNKNOWN, unknown.join(",").into());
        }
    }

    /// Whether faults go to the machine's own devices.
    pub fn passes_through(&self) -> bool {
        self.get(PASSTHROUGH).is_some_and(|value| value == "1")
    }

    /// Fails if a fault needs the wire and there is only the verbs of the machine's own devices.
    fn check_passthrough(&self, plan: &FaultPlan) -> Result<()> {
        match plan.beyond_passthrough().filter(|_| self.passes_through()) {
            Some(beyond) => Err(beyond.into()),
            None => Ok(()),
        }
    }

    /// Has CMD and its children find stubs of the libraries of rdma-core that are not here.
    fn supply_stubs(&mut self, library: &Path, program: Option<&Executable>) {
        let path = self.get(LIBRARY_PATH).unwrap_or_default().to_owned();
        let dirs = stubs::needed(library, &path, program);
        if !dirs.is_empty() {
            self.set(LIBRARY_PATH, stubs::extended(&path, &dirs));
        }
    }

    fn warn_of_obstacle(&self, program: Option<&Executable>) {
        let (user, group) = sys::user_and_group();
        if let Some(obstacle) = program.and_then(|program| program.obstacle(user, group)) {
            self.warn(&format!("{obstacle}, so it runs without Weft"));
        }
    }

    /// Whether the log level is below warnings.
    pub fn is_quiet(&self) -> bool {
        let quiet = [Level::Off, Level::Error].map(Level::name);
        let level = self.get("WEFT_LOG").unwrap_or_default();
        quiet.iter().any(|name| level == *name)
    }

    /// Says `text` on stderr, unless the log level is below warnings.
    fn warn(&self, text: &str) {
        if !self.is_quiet() {
            run_log::warn(text);
        }
    }
}
