//! Proof that a connecting process belongs to the job.
