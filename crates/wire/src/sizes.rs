//! The catalogue of virtual machine sizes: 151 sizes of 27 series, read once from `data/sizes.csv`.
//!
//! S1 a name is found however its letters are cased: files say `STANDARD_DS3_v2`, the SDK `STANDARD_DS3_V2`, Azure `Standard_DS3_v2`;
//! S2 a size of a retired series stays in the catalogue, works, and says the date;
//! S3 a constrained size (`Standard_HB120-16rs_v3`) has the vCPUs of its second number and all else of its parent.

use crate::names::nearest;
use model::Bytes;
use serde_json::{Value, json};
use std::{collections::HashMap, sync::LazyLock};

/// The operating-system disk of every size as the REST record states it, in MB.
const OS_DISK_MB: u64 = 1_047_552;

/// One virtual machine size.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// Name in Azure's own spelling, `Standard_DS3_v2`.
    pub name: &'static str,
    /// Series as Azure's articles name it, `DSv2`.
    pub series: &'static str,
    /// Code of the family that quota is counted by, `standardDSv2Family`; compared case-blind.
    pub family: &'static str,
    /// Virtual cores.
    pub vcpus: u32,
    /// Memory.
    pub memory: Bytes,
    /// Graphics processors.
    pub gpus: u32,
    /// Memory of each graphics processor, in GiB; 0 without one.
    pub gpu_memory_gib: u32,
    /// Can be a cluster.
    pub cluster: bool,
    /// Can be a compute instance.
    pub instance: bool,
    /// Can serve a managed online endpoint.
    pub managed_online: bool,
    /// Can use premium storage.
    pub premium_io: bool,
    /// Has remote direct memory access between nodes.
    pub rdma: bool,
    /// Is the only machine of one customer on its physical server.
    pub isolated: bool,
    /// Day on which Azure retired the series, `2024-08-31`.
    pub retired: Option<&'static str>,
    /// Pay-as-you-go price of an hour, Linux, East US, in US dollars as text; absent when no longer priced.
    pub usd_hour: Option<&'static str>,
    /// Local temporary disk in MB; 0 when unknown or absent.
    pub temp_disk_mb: u64,
}

/// How the cores of a size are counted against quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Counted per family and in total.
    Dedicated,
    /// Counted in one number over all families.
    LowPriority,
}

static SIZES: LazyLock<Vec<Size>> = LazyLock::new(|| {
    include_str!("../data/sizes.csv")
        .lines()
        .skip(1)
        .map(row)
        .collect()
});

static BY_NAME: LazyLock<HashMap<String, usize>> = LazyLock::new(|| {
    SIZES
        .iter()
        .enumerate()
        .map(|(i, size)| (size.name.to_ascii_lowercase(), i))
        .collect()
});

/// Every size, in the order of the catalogue.
pub fn all() -> &'static [Size] {
    &SIZES
}

/// The size of this name, case-blind (S1).
pub fn find(name: &str) -> Option<&'static Size> {
    BY_NAME.get(&name.to_ascii_lowercase()).map(|i| &SIZES[*i])
}

/// The size whose name is written most like this one; ties go to the first in the catalogue.
pub fn nearest_to(name: &str) -> &'static Size {
    let closest =
        nearest(name, SIZES.iter().map(|size| size.name)).expect("the catalogue is not empty");
    find(closest).expect("the name comes from the catalogue")
}

/// `standardDSv2Family` → `Standard DSv2 Family`; families that Azure already spells out stay as they are.
pub fn family_name(family: &str) -> String {
    match family
        .strip_prefix("standard")
        .and_then(|rest| rest.strip_suffix("Family"))
    {
        Some(series) => format!("Standard {series} Family"),
        None => family.to_owned(),
    }
}

/// Name under which the usage of a family is shown: `Standard DSv2 Family Cluster Dedicated vCPUs`.
pub fn quota_name(family: &str, tier: Tier) -> String {
    let tier = match tier {
        Tier::Dedicated => "Dedicated",
        Tier::LowPriority => "LowPriority",
    };
    format!("{} Cluster {tier} vCPUs", family_name(family))
}

impl Size {
    /// The record of the REST operation "Virtual Machine Sizes - List".
    pub fn record(&self) -> Value {
        let prices: Vec<Value> = self
            .usd_hour
            .and_then(|price| price.parse::<f64>().ok())
            .map(|price| json!({"retailPrice": price, "osType": "Linux", "vmTier": "Standard"}))
            .into_iter()
            .collect();
        let kinds = [
            (self.cluster, "AmlCompute"),
            (self.instance, "ComputeInstance"),
            (self.managed_online, "MIR"),
        ];
        json!({
            "name": self.name,
            "family": self.family,
            "vCPUs": self.vcpus,
            "gpus": self.gpus,
            "osVhdSizeMB": OS_DISK_MB,
            "maxResourceVolumeMB": self.temp_disk_mb,
            "memoryGB": self.memory_gib(),
            "lowPriorityCapable": true,
            "premiumIO": self.premium_io,
            "supportedComputeTypes": kinds.iter().filter(|(can, _)| *can).map(|(_, kind)| *kind).collect::<Vec<_>>(),
            "estimatedVMPrices": {"billingCurrency": "USD", "unitOfMeasure": "OneHour", "values": prices},
        })
    }

    /// Memory in GiB, for display; every size is a multiple of a quarter GiB.
    pub fn memory_gib(&self) -> f64 {
        let quarters = u32::try_from(self.memory.0 / (1 << 28)).expect("no size has 2^60 bytes");
        f64::from(quarters) / 4.0
    }

    /// Does the series work with this or a later CUDA only? `None` without a GPU.
    pub fn cuda_minimum(&self) -> Option<&'static str> {
        match self.series {
            "NDasrA100_v4" => Some("11.0"),
            "NCasT4_v3" => Some("10.0"),
            "NCv3" | "NDv2" | "NCv2" | "ND" | "NV" | "NVv3" | "NC" | "NC Promo" => Some("9.0"),
            _ => None,
        }
    }

    /// The warning for a size of a retired series, with the date.
    pub fn retired_on(&self) -> Option<String> {
        self.retired.map(|day| {
            format!(
                "size {} belongs to series {}, which Azure retired on {day}; choose another size",
                self.name, self.series
            )
        })
    }
}

fn row(line: &'static str) -> Size {
    let field: Vec<&'static str> = line.split(',').collect();
    let [
        series,
        name,
        vcpus,
        memory,
        gpus,
        gpu_memory,
        family,
        types,
        premium_io,
        rdma,
        isolated,
        retired,
        usd_hour,
        temp_disk,
    ] = field[..]
    else {
        panic!(
            "data/sizes.csv has a line of {} fields: {line}",
            field.len()
        );
    };
    let number = |text: &str| {
        text.parse::<u32>()
            .expect("data/sizes.csv holds whole numbers here")
    };
    let memory: crate::quantity::Quantity = format!("{memory}Gi")
        .parse()
        .expect("data/sizes.csv holds GiB here");
    let can = |letter: &str| types.split('+').any(|t| t == letter);
    Size {
        name,
        series,
        family,
        vcpus: number(vcpus),
        memory: memory.bytes().expect("a size has less than 2^64 bytes"),
        gpus: number(gpus),
        gpu_memory_gib: number(gpu_memory),
        cluster: can("C"),
        instance: can("I"),
        managed_online: can("M"),
        premium_io: premium_io == "y",
        rdma: rdma == "y",
        isolated: isolated == "y",
        retired: Some(retired).filter(|day| !day.is_empty()),
        usd_hour: Some(usd_hour).filter(|price| !price.is_empty()),
        temp_disk_mb: u64::from(number(temp_disk)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_catalogue_has_151_sizes_of_27_series() {
        assert_eq!(all().len(), 151);
        assert_eq!(
            all()
                .iter()
                .map(|s| s.series)
                .collect::<BTreeSet<_>>()
                .len(),
            27
        );
        assert_eq!(
            all()
                .iter()
                .map(|s| s.name.to_ascii_lowercase())
                .collect::<BTreeSet<_>>()
                .len(),
            151
        );
        assert!(
            all()
                .iter()
                .all(|s| s.cluster && s.name.starts_with("Standard_") && s.vcpus > 0)
        );
    }

    #[test]
    fn names_are_found_case_blind() {
        for name in ["STANDARD_DS3_v2", "STANDARD_DS3_V2", "Standard_DS3_v2"] {
            let size = find(name).unwrap();
            assert_eq!(
                (size.name, size.vcpus, size.memory),
                ("Standard_DS3_v2", 4, Bytes(14 << 30))
            );
        }
        assert!(find("Standard_DS3").is_none());
        assert_eq!(nearest_to("Standard_DS3").name, "Standard_DS3_v2");
        assert_eq!(nearest_to("STANDARD_D2_V4").name, "Standard_D2_v2");
        assert_eq!(nearest_to("Standard_NC6s_v4").name, "Standard_NC6s_v2");
    }

    #[test]
    fn constrained_sizes_have_fewer_cores_than_their_parent() {
        let size = find("Standard_HB120-16rs_v3").unwrap();
        assert_eq!(
            (size.vcpus, size.memory),
            (16, find("Standard_HB120rs_v3").unwrap().memory)
        );
        assert_eq!(all().iter().filter(|s| s.name.contains('-')).count(), 8);
    }

    #[test]
    fn isolated_sizes_are_those_of_the_article() {
        let isolated: Vec<_> = all()
            .iter()
            .filter(|s| s.isolated)
            .map(|s| s.name)
            .collect();
        assert_eq!(
            isolated,
            [
                "Standard_F72s_v2",
                "Standard_M128ms",
                "Standard_NC24rs_v3",
                "Standard_NC24s_v3"
            ]
        );
    }

    #[test]
    fn retired_series_say_the_date() {
        let series = |day| {
            all()
                .iter()
                .filter(|s| s.retired == Some(day))
                .map(|s| s.series)
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(
            series("2023-08-31"),
            BTreeSet::from(["NC", "NCv2", "ND", "NV"])
        );
        assert_eq!(series("2024-08-31"), BTreeSet::from(["HB"]));
        assert_eq!(
            find("standard_nv6").unwrap().retired_on().unwrap(),
            "size Standard_NV6 belongs to series NV, which Azure retired on 2023-08-31; choose another size"
        );
        assert_eq!(find("Standard_DS3_v2").unwrap().retired_on(), None);
    }

    #[test]
    fn every_gpu_series_names_its_cuda() {
        assert!(
            all()
                .iter()
                .all(|s| (s.gpus > 0) == s.cuda_minimum().is_some())
        );
        assert_eq!(
            find("Standard_ND96asr_v4").unwrap().cuda_minimum(),
            Some("11.0")
        );
    }

    #[test]
    fn fx_is_for_clusters_only() {
        assert!(all().iter().all(|s| s.instance == (s.series != "FX")));
    }

    #[test]
    fn quota_names_are_the_usage_names() {
        assert_eq!(
            quota_name("standardDSv2Family", Tier::Dedicated),
            "Standard DSv2 Family Cluster Dedicated vCPUs"
        );
        assert_eq!(
            quota_name("Standard NCASv3_T4 Family", Tier::LowPriority),
            "Standard NCASv3_T4 Family Cluster LowPriority vCPUs"
        );
    }

    #[test]
    fn the_record_has_the_shape_of_rest() {
        assert_eq!(
            find("standard_ds3_v2").unwrap().record(),
            json!({
                "name": "Standard_DS3_v2", "family": "standardDSv2Family", "vCPUs": 4, "gpus": 0, "osVhdSizeMB": 1_047_552,
                "maxResourceVolumeMB": 28672, "memoryGB": 14.0, "lowPriorityCapable": true, "premiumIO": true,
                "supportedComputeTypes": ["AmlCompute", "ComputeInstance", "MIR"],
                "estimatedVMPrices": {"billingCurrency": "USD", "unitOfMeasure": "OneHour",
                    "values": [{"retailPrice": 0.293, "osType": "Linux", "vmTier": "Standard"}]}
            })
        );
        assert_eq!(find("Standard_M8ms").unwrap().memory_gib(), 218.75);
    }
}
