//! Prints the layout of the declarations, one fact per line; `check-layout.sh` compares it with the C headers.

use core::mem::{offset_of, size_of};

use rdma_core_sys::*;

/// Size and alignment of the struct, then offset and size of each field.
macro_rules! closed {
    ($type:ident: $($field:ident)*) => {
        println!("{} size {} align {}", stringify!($type), size_of::<$type>(), align_of::<$type>());
        open!($type: $($field)*);
    };
}

/// The same without size and alignment, for structs that newer headers extend and the library alone allocates.
macro_rules! open {
    ($type:ident: $($field:ident)*) => {
        $(println!(
            "{}.{} offset {} size {}",
            stringify!($type),
            stringify!($field),
            offset_of!($type, $field),
            field_size(|it: *const $type| {
                // SAFETY: `it` points to a whole, properly aligned (if uninitialised) value; no reference is made.
                unsafe { &raw const (*it).$field }
            }),
        );)*
    };
}

macro_rules! constants {
    ($($name:ident)*) => { $(println!("{} = {}", stringify!($name), $name);)* };
}

fn field_size<T, F>(field: impl Fn(*const T) -> *const F) -> usize {
    let value = core::mem::MaybeUninit::<T>::uninit();
    let _ = field(value.as_ptr());
    size_of::<F>()
}

fn main() {
    closed!(ibv_device: node_type transport_type name dev_name dev_path ibdev_path);
    open!(ibv_context: device ops cmd_fd async_fd num_comp_vectors);
    println!("ibv_context_ops size {} align {}", size_of::<ibv_context_ops>(), align_of::<ibv_context_ops>());
    closed!(ibv_device_attr: fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id hw_ver
        max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom
        max_res_rd_atom max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw max_raw_ipv6_qp
        max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr max_map_per_fmr
        max_srq max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay phys_port_cnt);
    open!(ibv_port_attr: state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr
        pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width active_speed
        phys_state link_layer flags port_cap_flags2);
    println!("ibv_gid size {} align {}", size_of::<ibv_gid>(), align_of::<ibv_gid>());
    closed!(ibv_gid_entry: gid gid_index port_num gid_type ndev_ifindex);
    constants!(IBV_SYSFS_NAME_MAX IBV_SYSFS_PATH_MAX IBV_NODE_UNKNOWN IBV_NODE_CA IBV_NODE_SWITCH IBV_NODE_ROUTER
        IBV_NODE_RNIC IBV_NODE_USNIC IBV_NODE_USNIC_UDP IBV_NODE_UNSPECIFIED IBV_TRANSPORT_IB IBV_TRANSPORT_IWARP
        IBV_ATOMIC_NONE IBV_ATOMIC_HCA IBV_ATOMIC_GLOB IBV_DEVICE_XRC IBV_PORT_NOP IBV_PORT_DOWN IBV_PORT_INIT
        IBV_PORT_ARMED IBV_PORT_ACTIVE IBV_PORT_ACTIVE_DEFER IBV_MTU_256 IBV_MTU_512 IBV_MTU_1024 IBV_MTU_2048
        IBV_MTU_4096 IBV_LINK_LAYER_UNSPECIFIED IBV_LINK_LAYER_INFINIBAND IBV_LINK_LAYER_ETHERNET IBV_GID_TYPE_IB
        IBV_GID_TYPE_ROCE_V1 IBV_GID_TYPE_ROCE_V2);
}
