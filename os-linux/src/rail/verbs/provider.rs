//! What the library and the driver of a device hold for a queue. The device's own memory is not in it, nor
//! is the kernel's bookkeeping.

use std::fs;
use std::path::Path;

/// Providers allocate whole pages.
const PAGE: u64 = 4096;
/// The kernel's devices; `IBV_SYSFS_DIR` of rdma-core.
const DEVICES: &str = "/sys/class/infiniband";

/// Whose formulas count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// rdma-core, providers/mlx5/verbs.c, `sq_overhead` to `mlx5_alloc_qp_buf`. Its requests are among the
    /// largest, so it stands for the providers that are not listed.
    Mlx5,
    /// rdma-core, providers/mlx4: qp.c, `mlx4_calc_sq_wqe_size`, `mlx4_alloc_qp_buf`; verbs.c,
    /// `mlx4_create_qp`; srq.c, `mlx4_alloc_srq_buf`.
    Mlx4,
    /// Soft-RoCE: Linux, drivers/infiniband/sw/rxe: rxe_qp.c, `rxe_qp_init_req`; rxe_queue.c,
    /// `rxe_queue_init`; sizes of include/uapi/rdma/rdma_user_rxe.h.
    Rxe,
}

/// A send queue, as it is requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendQueue {
    /// Requests.
    pub depth: u64,
    /// Pieces of memory of each.
    pub sges: u64,
    /// Bytes inline in each.
    pub inline: u64,
}

impl Provider {
    /// Those listed.
    pub const ALL: [Provider; 3] = [Provider::Mlx5, Provider::Mlx4, Provider::Rxe];

    /// Names of this machine's devices.
    pub fn devices() -> Vec<String> {
        let entries = fs::read_dir(DEVICES).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Of this machine's device of that name: by its driver, or, for those that a network interface carries,
    /// by the interface that the driver lists (`parent_show` in rxe_verbs.c). `None`: not listed here.
    pub fn of_device(device: &str) -> Option<Provider> {
        let at = Path::new(DEVICES).join(device);
        match fs::read_link(at.join("device/driver")) {
            Ok(driver) if driver.ends_with("mlx5_core") => Some(Provider::Mlx5),
            Ok(driver) if driver.ends_with("mlx4_core") => Some(Provider::Mlx4),
            Ok(_) => None,
            Err(_) => at.join("parent").exists().then_some(Provider::Rxe),
        }
    }

    /// Bytes of a queue pair that receives from a shared queue.
    pub(super) fn send_queue_bytes(self, SendQueue { depth, sges, inline }: SendQueue) -> u64 {
        match self {
            Provider::Mlx5 => {
                // Control, address and atomic segments; blocks of 64 bytes, each with 16 of bookkeeping.
                let payload = (4 + inline).next_multiple_of(16).max(16 * sges);
                let queue = (depth * (192 + payload).next_multiple_of(64)).next_power_of_two();
                queue.next_multiple_of(PAGE) + queue / 64 * 16
            }
            Provider::Mlx4 => {
                // Inline data don't cross a 64th byte, and each part of them has 4 bytes in front.
                let parts = (inline + 32).div_ceil(60);
                let payload = (inline + 4 * parts).next_multiple_of(16).max(16 * sges);
                let request = (16 + 16 + payload).max(64).next_power_of_two();
                let count = (depth + 2048 / request + 1).next_power_of_two();
                (count * request).next_multiple_of(PAGE) + count * 8
            }
            Provider::Rxe => rxe_queue_bytes(depth, 208 + inline.max(16 * sges)),
        }
    }

    /// Bytes of a shared receive queue for `count` receives in one piece each.
    pub(super) fn receive_queue_bytes(self, count: u64) -> u64 {
        let places = (count + 1).next_power_of_two();
        match self {
            Provider::Mlx5 | Provider::Mlx4 => (places * 32).next_multiple_of(PAGE) + places * 8,
            Provider::Rxe => rxe_queue_bytes(count, 40 + 16),
        }
    }

    /// Bytes of a completion queue for `count` completions.
    pub(super) fn completion_queue_bytes(self, count: u64) -> u64 {
        match self {
            Provider::Mlx5 | Provider::Mlx4 => ((count + 1).next_power_of_two() * 64).next_multiple_of(PAGE),
            Provider::Rxe => rxe_queue_bytes(count, 64),
        }
    }
}

/// A queue's elements are powers of two of bytes, and it is one; a header goes before them.
fn rxe_queue_bytes(count: u64, element: u64) -> u64 {
    const HEADER: u64 = 512;
    (HEADER + (count + 1).next_power_of_two() * element.max(64).next_power_of_two()).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from the sources.
    #[test]
    fn queues_are_as_large_as_the_providers_make_them() {
        let queue = SendQueue { depth: 64, sges: 8, inline: 256 };
        let bytes = Provider::ALL.map(|provider| provider.send_queue_bytes(queue));
        // mlx5: 64 x 512, and 16 of each 64. mlx4: 5 parts inline, 276 bytes, 512 with the rest; 64 requests
        // and 5 spare ones: 128. rxe: 208 + 256 = 464, 512; 65 places: 128.
        assert_eq!(bytes, [32_768 + 8192, 128 * 512 + 128 * 8, 128 * 512 + 4096]);
        let small = SendQueue { depth: 48, sges: 8, inline: 64 };
        let bytes = Provider::ALL.map(|provider| provider.send_queue_bytes(small));
        // mlx5: 192 + 128 = 320. mlx4: 32 + 128, 256; 48 + 9: 64. rxe: 208 + 128, 512; 49: 64.
        assert_eq!(bytes, [16_384 + 4096, 64 * 256 + 64 * 8, 64 * 512 + 4096]);
        assert_eq!(Provider::ALL.map(|provider| provider.receive_queue_bytes(128)), [8192 + 2048, 8192 + 2048, 20_480]);
        assert_eq!(Provider::of_device("no such device"), None);
    }
}
