//! Prints the layout of the declarations, one fact per line; `check-layout.sh` compares it with the C
//! headers.

use core::mem::{offset_of, size_of};

use rdma_core_sys::*;

/// Size and alignment of the struct, then offset and size of each field.
macro_rules! closed {
    ($type:ident: $($field:ident)*) => {
        println!("{} size {} align {}", stringify!($type), size_of::<$type>(), align_of::<$type>());
        open!($type: $($field)*);
    };
}

/// The same without size and alignment, for structs that newer headers extend and the library alone
/// allocates.
macro_rules! open {
    ($type:ident: $($field:ident)*) => {
        $(println!(
            "{}.{} offset {} size {}",
            stringify!($type),
            stringify!($field),
            offset_of!($type, $field),
            field_size(|it: *const $type| {
                // SAFETY: `it` points to a whole, properly aligned (if uninitialised) value; no reference is
                // made.
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

fn objects() {
    closed!(ibv_pd: context handle);
    closed!(ibv_xrcd: context);
    closed!(ibv_mr: context pd addr length handle lkey rkey);
    closed!(ibv_comp_channel: context fd refcnt);
    closed!(ibv_ah: context pd handle);
    closed!(ibv_qp_cap: max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data);
    closed!(ibv_qp_init_attr: qp_context send_cq recv_cq srq cap qp_type sq_sig_all);
    closed!(ibv_rx_hash_conf: rx_hash_function rx_hash_key_len rx_hash_key rx_hash_fields_mask);
    closed!(ibv_qp_init_attr_ex: qp_context send_cq recv_cq srq cap qp_type sq_sig_all comp_mask pd xrcd create_flags max_tso_header rwq_ind_tbl rx_hash_conf source_qpn send_ops_flags);
    closed!(ibv_qp_open_attr: comp_mask qp_num xrcd qp_context qp_type);
    closed!(ibv_global_route: dgid flow_label sgid_index hop_limit traffic_class);
    closed!(ibv_ah_attr: grh dlid sl src_path_bits static_rate is_global port_num);
    closed!(ibv_qp_attr: qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout rate_limit);
    closed!(ibv_srq_attr: max_wr max_sge srq_limit);
    closed!(ibv_srq_init_attr: srq_context attr);
    closed!(ibv_tm_cap: max_num_tags max_ops);
    closed!(ibv_srq_init_attr_ex: srq_context attr comp_mask srq_type pd xrcd cq tm_cap);
    closed!(ibv_xrcd_init_attr: comp_mask fd oflags);
    closed!(ibv_async_event: element event_type);
    open!(ibv_cq: context channel cq_context handle cqe);
    open!(ibv_srq: context srq_context pd handle);
    open!(ibv_qp: context qp_context pd send_cq recv_cq srq handle qp_num state qp_type);
}

fn work() {
    closed!(ibv_sge: addr length lkey);
    closed!(ibv_recv_wr: wr_id next sg_list num_sge);
    closed!(ibv_wc: wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid sl dlid_path_bits);
    closed!(ibv_send_wr: wr_id next sg_list num_sge opcode send_flags imm_data wr);
    // Parts of unions, by their names in C.
    let send = offset_of!(ibv_send_wr, wr);
    nested("wr.rdma.remote_addr", send + offset_of!(ibv_wr_rdma, remote_addr), 8);
    nested("wr.rdma.rkey", send + offset_of!(ibv_wr_rdma, rkey), 4);
    nested("wr.atomic.compare_add", send + offset_of!(ibv_wr_atomic, compare_add), 8);
    nested("wr.atomic.swap", send + offset_of!(ibv_wr_atomic, swap), 8);
    nested("wr.atomic.rkey", send + offset_of!(ibv_wr_atomic, rkey), 4);
    nested("wr.ud.ah", send + offset_of!(ibv_wr_ud, ah), 8);
    nested("wr.ud.remote_qpn", send + offset_of!(ibv_wr_ud, remote_qpn), 4);
    nested("wr.ud.remote_qkey", send + offset_of!(ibv_wr_ud, remote_qkey), 4);
    nested("qp_type.xrc.remote_srqn", offset_of!(ibv_send_wr, remote_srqn), 4);
}

/// A part of `ibv_send_wr` by its path in C.
fn nested(path: &str, offset: usize, size: usize) {
    println!("ibv_send_wr.{path} offset {offset} size {size}");
}

/// Its beginning moves with every release of the library: offsets are counted from its end.
fn verbs_context() {
    let end = size_of::<verbs_context>();
    for (field, offset) in [
        ("modify_cq", offset_of!(verbs_context, modify_cq)),
        ("query_device_ex", offset_of!(verbs_context, query_device_ex)),
        ("open_qp", offset_of!(verbs_context, open_qp)),
        ("create_qp_ex", offset_of!(verbs_context, create_qp_ex)),
        ("get_srq_num", offset_of!(verbs_context, get_srq_num)),
        ("create_srq_ex", offset_of!(verbs_context, create_srq_ex)),
        ("open_xrcd", offset_of!(verbs_context, open_xrcd)),
        ("close_xrcd", offset_of!(verbs_context, close_xrcd)),
        ("sz", offset_of!(verbs_context, sz)),
        ("context", offset_of!(verbs_context, context)),
    ] {
        println!("verbs_context.{field} before-end {}", end - offset);
    }
}

fn main() {
    closed!(ibv_device: node_type transport_type name dev_name dev_path ibdev_path);
    closed!(ibv_context: device ops cmd_fd async_fd num_comp_vectors mutex abi_compat);
    closed!(ibv_context_ops: poll_cq req_notify_cq post_srq_recv post_send post_recv);
    verbs_context();
    objects();
    work();
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
    closed!(ibv_query_device_ex_input: comp_mask);
    closed!(ibv_odp_caps: general_caps per_transport_caps);
    closed!(ibv_cq_moderation_caps: max_cq_count max_cq_period);
    open!(ibv_device_attr_ex: orig_attr comp_mask odp_caps completion_timestamp_mask hca_core_clock device_cap_flags_ex
        cq_mod_caps max_dm_size xrc_odp_caps);
    closed!(ibv_moderate_cq: cq_count cq_period);
    closed!(ibv_modify_cq_attr: attr_mask moderate);
    constants!(
        IBV_ODP_SUPPORT IBV_ODP_SUPPORT_SEND IBV_ODP_SUPPORT_RECV IBV_ODP_SUPPORT_WRITE IBV_ODP_SUPPORT_READ
        IBV_ODP_SUPPORT_SRQ_RECV IBV_CQ_ATTR_MODERATE
        IBV_SYSFS_NAME_MAX IBV_SYSFS_PATH_MAX IBV_NODE_UNKNOWN IBV_NODE_CA IBV_NODE_SWITCH IBV_NODE_ROUTER
        IBV_NODE_RNIC IBV_NODE_USNIC IBV_NODE_USNIC_UDP IBV_NODE_UNSPECIFIED IBV_TRANSPORT_IB IBV_TRANSPORT_IWARP
        IBV_ATOMIC_NONE IBV_ATOMIC_HCA IBV_ATOMIC_GLOB IBV_DEVICE_XRC IBV_PORT_NOP IBV_PORT_DOWN IBV_PORT_INIT
        IBV_PORT_ARMED IBV_PORT_ACTIVE IBV_PORT_ACTIVE_DEFER IBV_MTU_256 IBV_MTU_512 IBV_MTU_1024 IBV_MTU_2048
        IBV_MTU_4096 IBV_LINK_LAYER_UNSPECIFIED IBV_LINK_LAYER_INFINIBAND IBV_LINK_LAYER_ETHERNET IBV_QPF_GRH_REQUIRED IBV_GID_TYPE_IB
        IBV_GID_TYPE_ROCE_V1 IBV_GID_TYPE_ROCE_V2 IBV_QPT_RC IBV_QPT_UD IBV_QPT_XRC_SEND IBV_QPT_XRC_RECV
        IBV_QPS_RESET IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS IBV_QPS_SQD IBV_QPS_SQE IBV_QPS_ERR IBV_QP_STATE
        IBV_QP_CUR_STATE IBV_QP_EN_SQD_ASYNC_NOTIFY IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX IBV_QP_PORT IBV_QP_QKEY
        IBV_QP_AV IBV_QP_PATH_MTU IBV_QP_TIMEOUT IBV_QP_RETRY_CNT IBV_QP_RNR_RETRY IBV_QP_RQ_PSN
        IBV_QP_MAX_QP_RD_ATOMIC IBV_QP_MIN_RNR_TIMER IBV_QP_SQ_PSN IBV_QP_MAX_DEST_RD_ATOMIC IBV_QP_CAP
        IBV_QP_DEST_QPN IBV_QP_INIT_ATTR_PD IBV_QP_INIT_ATTR_XRCD IBV_QP_OPEN_ATTR_NUM IBV_QP_OPEN_ATTR_XRCD
        IBV_QP_OPEN_ATTR_CONTEXT IBV_QP_OPEN_ATTR_TYPE IBV_SRQT_BASIC IBV_SRQT_XRC IBV_SRQ_INIT_ATTR_TYPE
        IBV_SRQ_INIT_ATTR_PD IBV_SRQ_INIT_ATTR_XRCD IBV_SRQ_INIT_ATTR_CQ IBV_SRQ_LIMIT IBV_XRCD_INIT_ATTR_FD
        IBV_XRCD_INIT_ATTR_OFLAGS IBV_ACCESS_LOCAL_WRITE IBV_ACCESS_REMOTE_WRITE IBV_ACCESS_REMOTE_READ
        IBV_ACCESS_REMOTE_ATOMIC IBV_ACCESS_ON_DEMAND IBV_ACCESS_RELAXED_ORDERING IBV_WR_RDMA_WRITE
        IBV_WR_RDMA_WRITE_WITH_IMM IBV_WR_SEND IBV_WR_SEND_WITH_IMM IBV_WR_RDMA_READ IBV_WR_ATOMIC_CMP_AND_SWP
        IBV_WR_ATOMIC_FETCH_AND_ADD IBV_SEND_FENCE IBV_SEND_SIGNALED IBV_SEND_SOLICITED IBV_SEND_INLINE IBV_WC_SUCCESS
        IBV_WC_LOC_LEN_ERR IBV_WC_LOC_QP_OP_ERR IBV_WC_LOC_PROT_ERR IBV_WC_WR_FLUSH_ERR IBV_WC_BAD_RESP_ERR
        IBV_WC_LOC_ACCESS_ERR IBV_WC_REM_INV_REQ_ERR IBV_WC_REM_ACCESS_ERR IBV_WC_REM_OP_ERR IBV_WC_RETRY_EXC_ERR
        IBV_WC_RNR_RETRY_EXC_ERR IBV_WC_FATAL_ERR IBV_WC_SEND IBV_WC_RDMA_WRITE IBV_WC_RDMA_READ IBV_WC_COMP_SWAP
        IBV_WC_FETCH_ADD IBV_WC_RECV IBV_WC_RECV_RDMA_WITH_IMM IBV_WC_GRH IBV_WC_WITH_IMM IBV_EVENT_CQ_ERR
        IBV_EVENT_QP_FATAL IBV_EVENT_QP_REQ_ERR IBV_EVENT_QP_ACCESS_ERR IBV_EVENT_COMM_EST IBV_EVENT_SQ_DRAINED
        IBV_EVENT_DEVICE_FATAL IBV_EVENT_PORT_ACTIVE IBV_EVENT_PORT_ERR IBV_EVENT_LID_CHANGE IBV_EVENT_PKEY_CHANGE
        IBV_EVENT_SM_CHANGE IBV_EVENT_SRQ_ERR IBV_EVENT_SRQ_LIMIT_REACHED IBV_EVENT_QP_LAST_WQE_REACHED
        IBV_EVENT_CLIENT_REREGISTER IBV_EVENT_GID_CHANGE
    );
}
