//! A job of one process, without a launcher.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{BootError, Bootstrap, OwnKeys, check_key, check_rank};

/// Rank 0 of 1.
#[derive(Debug, Default)]
pub struct Single {
    name: String,
    keys: OwnKeys,
    values: BTreeMap<String, String>,
    over: bool,
}

impl Single {
    /// The job of this process.
    pub fn new() -> Self {
        Single { name: format!("single-{}", std::process::id()), ..Self::default() }
    }

    fn running(&self) -> Result<(), BootError> {
        if self.over { Err(BootError::Over) } else { Ok(()) }
    }
}

impl Bootstrap for Single {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn job_name(&self) -> &str {
        &self.name
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError> {
        self.running()?;
        self.keys.claim(key, value)?;
        self.values.insert(key.into(), value.into());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), BootError> {
        self.running()
    }

    fn barrier(&mut self, _: Option<Duration>, _: &mut dyn FnMut()) -> Result<(), BootError> {
        self.running()
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, BootError> {
        self.running()?;
        check_rank(rank, 1)?;
        check_key(key)?;
        Ok(self.values.get(key).cloned())
    }

    fn finalize(&mut self) -> Result<(), BootError> {
        self.running()?;
        self.over = true;
        Ok(())
    }

    fn abort(&mut self, _why: &str) {
        self.over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn talks_to_itself() {
        let mut boot = Single::new();
        boot.put("here", "a = b; c").unwrap();
        boot.fence().unwrap();
        assert_eq!(boot.get(0, "here").unwrap().as_deref(), Some("a = b; c"));
        assert_eq!(boot.get(0, "there").unwrap(), None);
        assert!(matches!(boot.get(1, "here"), Err(BootError::Rank { rank: 1, size: 1 })));
        boot.finalize().unwrap();
        assert!(matches!(boot.fence(), Err(BootError::Over)));
    }
}
