//! How the processes of a gang find each other: where each rank is reached, and the variables that tell them.
//!
//! R1 what a process is told equals what was granted: as many ranks as tasks of the gang times processes of each;
//! R2 every process of a gang attempt is told the same addresses: they are chosen once, before the first of them starts.

use model::{
    TaskId,
    engine::{DISTRIBUTION_VARIABLE, PROCESSES_VARIABLE},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, TcpListener},
};

/// First port for gangs: below the range that the kernel gives out by itself.
const FIRST_PORT: u16 = 20_000;
/// Ports to choose from.
const PORTS: u16 = 12_000;
/// Most processes of one task: `processCountPerInstance` of the REST contract ends here.
const MAX_PROCESSES: u32 = 1000;

/// Where a rank is reached by the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// A name or an IP address.
    pub host: String,
    /// A port that is its alone.
    pub port: u16,
}

/// What tells the processes of each other, beside the variables that all get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distribution {
    /// `torch.distributed`: the variables that all get.
    PyTorch,
    /// `OMPI_…`, as `mpirun` would set them.
    Mpi,
    /// `TF_CONFIG`.
    TensorFlow,
}

/// The gang of a task, as its processes see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// The place of this task.
    pub rank: u32,
    /// Where each task is reached, by rank; one at least.
    pub addresses: Vec<Address>,
    /// Processes of each task.
    pub processes: u32,
    /// What was declared, if anything.
    pub distribution: Option<Distribution>,
}

impl Gang {
    /// The gang of `task`. The variables say what `wire` has read of the job's `distribution`; a user may write them too.
    pub fn new(
        task: &TaskId,
        gang: &[TaskId],
        addresses: Vec<Address>,
        variables: &BTreeMap<Box<str>, Box<str>>,
    ) -> Result<Gang, String> {
        let rank = match gang.iter().position(|member| member == task) {
            Some(rank) => u32::try_from(rank).unwrap_or(u32::MAX),
            None if gang.len() > 1 => return Err(format!("task {task} is not of its own gang")),
            None => 0, // a host of a batch run has no gang
        };
        if addresses.len() != gang.len().max(1) {
            return Err(format!(
                "no {} ports are free between {FIRST_PORT} and {}",
                gang.len(),
                FIRST_PORT + PORTS - 1
            ));
        }
        let distribution = match variables.get(DISTRIBUTION_VARIABLE).map(|v| &**v) {
            None => None,
            Some("pytorch") => Some(Distribution::PyTorch),
            Some("mpi") => Some(Distribution::Mpi),
            Some("tensorflow") => Some(Distribution::TensorFlow),
            Some(other) => {
                return Err(format!(
                    "{DISTRIBUTION_VARIABLE} is `{other}`, known are pytorch, mpi and tensorflow"
                ));
            }
        };
        let processes = match variables.get(PROCESSES_VARIABLE) {
            None => 1,
            Some(text) => text
                .parse()
                .ok()
                .filter(|n| (1..=MAX_PROCESSES).contains(n))
                .ok_or_else(|| {
                    format!(
                        "{PROCESSES_VARIABLE} is `{text}`, not a number from 1 to {MAX_PROCESSES}"
                    )
                })?,
        };
        Ok(Gang {
            rank,
            addresses,
            processes,
            distribution,
        })
    }

    /// Processes of all tasks.
    pub fn world(&self) -> u32 {
        let tasks = u32::try_from(self.addresses.len()).unwrap_or(u32::MAX);
        tasks.saturating_mul(self.processes)
    }

    /// The rank of a process of this task among all.
    pub fn rank_of(&self, local: u32) -> u32 {
        self.rank
            .saturating_mul(self.processes)
            .saturating_add(local)
    }

    /// Where the log of one process lies below the run's artifacts: names that the SDK streams (behaviour §2.4.7).
    pub fn log_name(&self, local: u32) -> String {
        if self.world() <= 1 {
            "user_logs/std_log.txt".to_owned()
        } else {
            format!("user_logs/std_log_process_{:02}.txt", self.rank_of(local))
        }
    }

    /// The variables of one process (behaviour §2.4.4).
    pub fn variables(&self, local: u32) -> Vec<(&'static str, String)> {
        let master = self.addresses.first();
        let host = master.map_or("", |a| &a.host).to_owned();
        let port = master.map_or(0, |a| a.port).to_string();
        let hosts: Vec<&str> = self.addresses.iter().map(|a| &*a.host).collect();
        let (rank, world) = (self.rank_of(local).to_string(), self.world().to_string());
        let (local, locals) = (local.to_string(), self.processes.to_string());
        let mut out = vec![
            ("AZUREML_PROCESS_NAME", format!("rank_{rank}")),
            ("RANK", rank.clone()),
            ("NODE_RANK", self.rank.to_string()),
            ("LOCAL_RANK", local.clone()),
            ("WORLD_SIZE", world.clone()),
            ("LOCAL_WORLD_SIZE", locals.clone()),
            ("MASTER_ADDR", host.clone()),
            ("MASTER_PORT", port),
            ("AZ_BATCHAI_MPI_MASTER_NODE", host),
            ("AZ_BATCH_HOST_LIST", hosts.join(",")),
        ];
        match self.distribution {
            Some(Distribution::Mpi) => out.extend([
                ("OMPI_COMM_WORLD_RANK", rank),
                ("OMPI_COMM_WORLD_SIZE", world),
                ("OMPI_COMM_WORLD_NODE_RANK", local.clone()),
                ("OMPI_COMM_WORLD_LOCAL_RANK", local),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", locals),
            ]),
            Some(Distribution::TensorFlow) => out.push(("TF_CONFIG", self.tf_config())),
            Some(Distribution::PyTorch) | None => {}
        }
        out
    }

    fn tf_config(&self) -> String {
        let address = |a: &Address| format!("{}:{}", a.host, a.port);
        let workers: Vec<String> = self.addresses.iter().map(address).collect();
        serde_json::json!({
            "cluster": {"worker": workers},
            "task": {"type": "worker", "index": self.rank},
            "environment": "cloud",
        })
        .to_string()
    }

    /// What a user should know of how the processes are started.
    pub fn note(&self) -> Option<String> {
        (self.distribution == Some(Distribution::Mpi)).then(|| {
            format!(
                "mpi: {} of {} processes are started here, by Zaffre and not by mpirun; OMPI_COMM_WORLD_* are set",
                self.processes,
                self.world()
            )
        })
    }
}

/// Where the ranks of a gang are reached when all of them run on this machine: each at a port of the loopback that is free
/// now and not in `taken`. Empty when there are not so many.
pub fn on_this_machine(gang: &[TaskId], taken: &BTreeSet<u16>) -> Vec<Address> {
    let text = serde_json::to_string(gang).expect("ids can be written");
    // Gangs begin at different places, so that two servers of one machine seldom look at the same ports at once.
    let seed = u16::try_from(crc32fast::hash(text.as_bytes()) % u32::from(PORTS)).unwrap_or(0);
    let ports = (seed..PORTS).chain(0..seed).map(|n| FIRST_PORT + n);
    let free = ports
        .filter(|port| !taken.contains(port))
        .filter(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    let wanted = gang.len().max(1);
    let found: Vec<Address> = free
        .take(wanted)
        .map(|port| Address {
            host: Ipv4Addr::LOCALHOST.to_string(),
            port,
        })
        .collect();
    if found.len() == wanted {
        found
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Attempt, Id, Workspace};

    fn gang(n: u32) -> Vec<TaskId> {
        let job = Id::new(&Workspace::new("s", "g", "w"), "job");
        (0..n)
            .map(|index| TaskId {
                job: job.clone(),
                index,
                attempt: Attempt(1),
            })
            .collect()
    }

    fn of(rank: usize, n: u32, variables: &[(&str, &str)]) -> Result<Gang, String> {
        let gang = gang(n);
        let addresses = (0..n)
            .map(|k| Address {
                host: format!("h{k}"),
                port: 2222 + u16::try_from(k).unwrap(),
            })
            .collect();
        let variables = variables.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        Gang::new(&gang[rank], &gang, addresses, &variables.collect())
    }

    fn value(gang: &Gang, local: u32, name: &str) -> Option<String> {
        let mut all = gang.variables(local).into_iter();
        all.find(|(k, _)| *k == name).map(|(_, v)| v)
    }

    #[test]
    fn r1_ranks_are_counted_over_nodes_and_processes() {
        let variables = [
            (DISTRIBUTION_VARIABLE, "pytorch"),
            (PROCESSES_VARIABLE, "4"),
        ];
        let gang = of(1, 3, &variables).unwrap();
        for (name, wanted) in [
            ("RANK", "6"),
            ("LOCAL_RANK", "2"),
            ("NODE_RANK", "1"),
            ("WORLD_SIZE", "12"),
            ("MASTER_ADDR", "h0"),
            ("MASTER_PORT", "2222"),
            ("AZ_BATCH_HOST_LIST", "h0,h1,h2"),
            ("AZUREML_PROCESS_NAME", "rank_6"),
        ] {
            assert_eq!(value(&gang, 2, name).as_deref(), Some(wanted), "{name}");
        }
        assert_eq!(value(&gang, 2, "OMPI_COMM_WORLD_RANK"), None);
        assert_eq!(value(&gang, 2, "TF_CONFIG"), None);
    }

    #[test]
    fn each_distribution_has_its_variables() {
        let mpi = of(
            1,
            2,
            &[(DISTRIBUTION_VARIABLE, "mpi"), (PROCESSES_VARIABLE, "2")],
        )
        .unwrap();
        assert_eq!(value(&mpi, 1, "OMPI_COMM_WORLD_RANK").unwrap(), "3");
        assert_eq!(value(&mpi, 1, "OMPI_COMM_WORLD_SIZE").unwrap(), "4");
        assert_eq!(value(&mpi, 1, "OMPI_COMM_WORLD_LOCAL_RANK").unwrap(), "1");
        assert_eq!(value(&mpi, 1, "AZ_BATCHAI_MPI_MASTER_NODE").unwrap(), "h0");
        assert!(mpi.note().unwrap().contains("2 of 4 processes"));
        let tensorflow = of(1, 2, &[(DISTRIBUTION_VARIABLE, "tensorflow")]).unwrap();
        let config: serde_json::Value =
            serde_json::from_str(&value(&tensorflow, 0, "TF_CONFIG").unwrap()).unwrap();
        assert_eq!(
            config,
            serde_json::json!({
                "cluster": {"worker": ["h0:2222", "h1:2223"]},
                "task": {"type": "worker", "index": 1},
                "environment": "cloud",
            })
        );
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for (variables, said) in [
            ([(DISTRIBUTION_VARIABLE, "ray")], "is `ray`, known are"),
            ([(PROCESSES_VARIABLE, "0")], "is `0`, not a number from 1"),
            ([(PROCESSES_VARIABLE, "many")], "is `many`"),
        ] {
            let error = of(0, 1, &variables).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let gang = gang(2);
        let none = Gang::new(&gang[0], &gang, Vec::new(), &BTreeMap::new());
        assert!(none.unwrap_err().contains("2 ports are free"));
    }

    #[test]
    fn ports_are_free_and_of_one_rank_each() {
        let gang = gang(3);
        let ports = |taken: &BTreeSet<u16>| {
            let found = on_this_machine(&gang, taken);
            found.iter().map(|a| a.port).collect::<BTreeSet<u16>>()
        };
        let first = ports(&BTreeSet::new());
        assert_eq!(first.len(), 3);
        assert!(ports(&first).is_disjoint(&first), "taken ones are left out");
        let one = *first.first().unwrap();
        // Another test may have it for a moment: then it is just as well not free.
        let _busy = TcpListener::bind((Ipv4Addr::LOCALHOST, one));
        assert!(
            !ports(&BTreeSet::new()).contains(&one),
            "a busy port is not chosen"
        );
        let all: BTreeSet<u16> = (FIRST_PORT..FIRST_PORT + PORTS).collect();
        assert!(on_this_machine(&gang, &all).is_empty());
    }
}
