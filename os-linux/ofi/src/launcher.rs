//! The environment's description of a job: hints only. The rank is shown with the name, for people; the size
//! is for how many processes there is room at least.

/// A launcher's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launcher {
    /// This process's rank.
    pub rank: Option<u32>,
    /// Processes in the job.
    pub size: Option<u32>,
}

/// Variables for rank and size, of launchers that set both.
const PAIRS: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

impl Launcher {
    /// From the environment. A pair counts where both are numbers and the rank is below the size.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Launcher {
        let number = |name: &str| var(name).and_then(|text| text.parse::<u32>().ok());
        let pair = |(rank, size): (&str, &str)| Some((number(rank)?, number(size)?)).filter(|(rank, size)| rank < size);
        match PAIRS.into_iter().find_map(pair) {
            Some((rank, size)) => Launcher { rank: Some(rank), size: Some(size) },
            None => Launcher { rank: number("PMIX_RANK"), size: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Launcher {
        Launcher::from_vars(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn a_pair_counts_as_a_whole() {
        assert_eq!(of(&[]), Launcher::default());
        assert_eq!(of(&[("PMI_RANK", "2"), ("PMI_SIZE", "4")]), Launcher { rank: Some(2), size: Some(4) });
        assert_eq!(of(&[("PMI_RANK", "4"), ("PMI_SIZE", "4")]), Launcher::default());
        assert_eq!(of(&[("PMI_RANK", "x"), ("PMI_SIZE", "4")]), Launcher::default());
        assert_eq!(of(&[("PMIX_RANK", "3")]), Launcher { rank: Some(3), size: None });
        let both = [("PMI_RANK", "2"), ("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(of(&both), Launcher { rank: Some(1), size: Some(2) });
    }
}
