//! What a process is called, for faults that are for one of several.

use std::fs;
use std::path::Path;

/// Variables with the rank of a process in its job: of Open MPI, PMIx, PMI and Slurm.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

/// The name and the rank of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    /// The file name of its program.
    pub name: String,
    /// Its name as the kernel shows it, cut to fifteen bytes: threads and scripts may set it.
    pub comm: String,
    /// Its rank, if it is part of a job.
    pub rank: Option<u32>,
}

impl ProcessIdentity {
    /// Of this process.
    pub fn own() -> Self {
        let program = fs::read_link("/proc/self/exe").unwrap_or_default();
        let comm = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        Self::new(&program, comm.trim_end(), |name| std::env::var(name).ok())
    }

    fn new(program: &Path, comm: &str, variable: impl Fn(&str) -> Option<String>) -> Self {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let rank = RANKS.iter().find_map(|name| variable(name)?.trim().parse().ok());
        let name = if name.is_empty() { comm.to_owned() } else { name };
        Self { name, comm: comm.to_owned(), rank }
    }

    /// Its names.
    pub fn names(&self) -> [&str; 2] {
        [&self.name, &self.comm]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_that_is_a_number_counts() {
        let of = |set: &[(&str, &str)]| {
            let find = |name: &str| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            ProcessIdentity::new(Path::new("/usr/bin/rping"), "rping", find)
        };
        assert_eq!(of(&[]).rank, None);
        assert_eq!(of(&[("PMI_RANK", "3")]).rank, Some(3));
        assert_eq!(of(&[("PMIX_RANK", "1"), ("SLURM_PROCID", "9")]).rank, Some(1));
        assert_eq!(of(&[("SLURM_PROCID", "x")]).rank, None);
        assert_eq!(of(&[]).names(), ["rping", "rping"]);
    }
}
