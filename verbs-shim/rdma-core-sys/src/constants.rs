//! C enums as integers; values from `infiniband/verbs.h`, compared with it by `check-layout.sh`.

use core::ffi::c_int;

/// `enum ibv_node_type`.
pub type ibv_node_type = c_int;
/// The provider gives none.
pub const IBV_NODE_UNKNOWN: ibv_node_type = -1;
/// InfiniBand or RoCE channel adapter.
pub const IBV_NODE_CA: ibv_node_type = 1;
/// InfiniBand switch.
pub const IBV_NODE_SWITCH: ibv_node_type = 2;
/// InfiniBand router.
pub const IBV_NODE_ROUTER: ibv_node_type = 3;
/// iWARP NIC.
pub const IBV_NODE_RNIC: ibv_node_type = 4;
/// usNIC.
pub const IBV_NODE_USNIC: ibv_node_type = 5;
/// usNIC over UDP.
pub const IBV_NODE_USNIC_UDP: ibv_node_type = 6;
/// A device of no standard sort (EFA for one).
pub const IBV_NODE_UNSPECIFIED: ibv_node_type = 7;

/// `enum ibv_transport_type`.
pub type ibv_transport_type = c_int;
/// InfiniBand transport: InfiniBand and RoCE.
pub const IBV_TRANSPORT_IB: ibv_transport_type = 0;
/// iWARP.
pub const IBV_TRANSPORT_IWARP: ibv_transport_type = 1;

/// `enum ibv_atomic_cap`.
pub type ibv_atomic_cap = c_int;
/// No atomics.
pub const IBV_ATOMIC_NONE: ibv_atomic_cap = 0;
/// Atomic among the queue pairs of this device.
pub const IBV_ATOMIC_HCA: ibv_atomic_cap = 1;
/// Atomic with the processors too.
pub const IBV_ATOMIC_GLOB: ibv_atomic_cap = 2;

/// `ibv_device_attr::device_cap_flags`: the device has XRC.
pub const IBV_DEVICE_XRC: u32 = 1 << 20;

/// `enum ibv_port_state`.
pub type ibv_port_state = c_int;
/// No state change.
pub const IBV_PORT_NOP: ibv_port_state = 0;
/// No link.
pub const IBV_PORT_DOWN: ibv_port_state = 1;
/// The link is up, the subnet manager has not configured it.
pub const IBV_PORT_INIT: ibv_port_state = 2;
/// Configured, not yet active.
pub const IBV_PORT_ARMED: ibv_port_state = 3;
/// In service.
pub const IBV_PORT_ACTIVE: ibv_port_state = 4;
/// In service, link down for the moment.
pub const IBV_PORT_ACTIVE_DEFER: ibv_port_state = 5;

/// `enum ibv_mtu`.
pub type ibv_mtu = c_int;
/// 256 bytes.
pub const IBV_MTU_256: ibv_mtu = 1;
/// 512 bytes.
pub const IBV_MTU_512: ibv_mtu = 2;
/// 1024 bytes.
pub const IBV_MTU_1024: ibv_mtu = 3;
/// 2048 bytes.
pub const IBV_MTU_2048: ibv_mtu = 4;
/// 4096 bytes.
pub const IBV_MTU_4096: ibv_mtu = 5;

/// `ibv_port_attr::link_layer`: not given; by convention InfiniBand.
pub const IBV_LINK_LAYER_UNSPECIFIED: u8 = 0;
/// InfiniBand.
pub const IBV_LINK_LAYER_INFINIBAND: u8 = 1;
/// Ethernet (RoCE, iWARP).
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

/// `ibv_port_attr::flags`: nothing goes without a global route header.
pub const IBV_QPF_GRH_REQUIRED: u8 = 1 << 0;

/// `ibv_gid_entry::gid_type`: InfiniBand.
pub const IBV_GID_TYPE_IB: u32 = 0;
/// RoCE version 1: Ethernet frames, one broadcast domain.
pub const IBV_GID_TYPE_ROCE_V1: u32 = 1;
/// RoCE version 2: UDP, routable.
pub const IBV_GID_TYPE_ROCE_V2: u32 = 2;

/// `enum ibv_qp_type`.
pub type ibv_qp_type = c_int;
/// Reliable connection.
pub const IBV_QPT_RC: ibv_qp_type = 2;
/// Unreliable datagram.
pub const IBV_QPT_UD: ibv_qp_type = 4;
/// Sending half of an extended reliable connection.
pub const IBV_QPT_XRC_SEND: ibv_qp_type = 9;
/// Receiving half of one.
pub const IBV_QPT_XRC_RECV: ibv_qp_type = 10;

/// `enum ibv_qp_state`.
pub type ibv_qp_state = c_int;
/// As made.
pub const IBV_QPS_RESET: ibv_qp_state = 0;
/// Receives may be posted.
pub const IBV_QPS_INIT: ibv_qp_state = 1;
/// Ready to receive.
pub const IBV_QPS_RTR: ibv_qp_state = 2;
/// Ready to send.
pub const IBV_QPS_RTS: ibv_qp_state = 3;
/// Send queue drained.
pub const IBV_QPS_SQD: ibv_qp_state = 4;
/// Send queue in error.
pub const IBV_QPS_SQE: ibv_qp_state = 5;
/// In error.
pub const IBV_QPS_ERR: ibv_qp_state = 6;

/// `enum ibv_qp_attr_mask`: the state.
pub const IBV_QP_STATE: c_int = 1 << 0;
/// The state that it is thought to be in.
pub const IBV_QP_CUR_STATE: c_int = 1 << 1;
/// Whether an event reports the drained send queue.
pub const IBV_QP_EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
/// The peer's permitted accesses.
pub const IBV_QP_ACCESS_FLAGS: c_int = 1 << 3;
/// Partition key.
pub const IBV_QP_PKEY_INDEX: c_int = 1 << 4;
/// Port.
pub const IBV_QP_PORT: c_int = 1 << 5;
/// Queue key.
pub const IBV_QP_QKEY: c_int = 1 << 6;
/// Address.
pub const IBV_QP_AV: c_int = 1 << 7;
/// Bytes in a packet.
pub const IBV_QP_PATH_MTU: c_int = 1 << 8;
/// Time to wait for an acknowledgment.
pub const IBV_QP_TIMEOUT: c_int = 1 << 9;
/// Retries.
pub const IBV_QP_RETRY_CNT: c_int = 1 << 10;
/// Retries after RNR.
pub const IBV_QP_RNR_RETRY: c_int = 1 << 11;
/// First packet sequence number received.
pub const IBV_QP_RQ_PSN: c_int = 1 << 12;
/// Reads and atomics open at once.
pub const IBV_QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
/// RNR timer.
pub const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;
/// First packet sequence number sent.
pub const IBV_QP_SQ_PSN: c_int = 1 << 16;
/// Reads and atomics served at once.
pub const IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
/// Sizes.
pub const IBV_QP_CAP: c_int = 1 << 19;
/// The peer's queue pair.
pub const IBV_QP_DEST_QPN: c_int = 1 << 20;

/// `enum ibv_qp_init_attr_mask`: `pd` is given.
pub const IBV_QP_INIT_ATTR_PD: u32 = 1 << 0;
/// `xrcd` is given.
pub const IBV_QP_INIT_ATTR_XRCD: u32 = 1 << 1;

/// `enum ibv_qp_open_attr_mask`: `qp_num` is given.
pub const IBV_QP_OPEN_ATTR_NUM: u32 = 1 << 0;
/// `xrcd` is given.
pub const IBV_QP_OPEN_ATTR_XRCD: u32 = 1 << 1;
/// `qp_context` is given.
pub const IBV_QP_OPEN_ATTR_CONTEXT: u32 = 1 << 2;
/// `qp_type` is given.
pub const IBV_QP_OPEN_ATTR_TYPE: u32 = 1 << 3;

/// `enum ibv_srq_type`: an ordinary one.
pub const IBV_SRQT_BASIC: c_int = 0;
/// One for XRC.
pub const IBV_SRQT_XRC: c_int = 1;
/// `enum ibv_srq_init_attr_mask`: `srq_type` is given.
pub const IBV_SRQ_INIT_ATTR_TYPE: u32 = 1 << 0;
/// `pd` is given.
pub const IBV_SRQ_INIT_ATTR_PD: u32 = 1 << 1;
/// `xrcd` is given.
pub const IBV_SRQ_INIT_ATTR_XRCD: u32 = 1 << 2;
/// `cq` is given.
pub const IBV_SRQ_INIT_ATTR_CQ: u32 = 1 << 3;
/// `enum ibv_srq_attr_mask`: the limit.
pub const IBV_SRQ_LIMIT: c_int = 1 << 1;

/// `enum ibv_xrcd_init_attr_mask`: `fd` is given.
pub const IBV_XRCD_INIT_ATTR_FD: u32 = 1 << 0;
/// `oflags` is given.
pub const IBV_XRCD_INIT_ATTR_OFLAGS: u32 = 1 << 1;

/// `enum ibv_access_flags`: local writes.
pub const IBV_ACCESS_LOCAL_WRITE: u32 = 1 << 0;
/// Remote writes.
pub const IBV_ACCESS_REMOTE_WRITE: u32 = 1 << 1;
/// Remote reads.
pub const IBV_ACCESS_REMOTE_READ: u32 = 1 << 2;
/// Remote atomics.
pub const IBV_ACCESS_REMOTE_ATOMIC: u32 = 1 << 3;
/// Pages are brought in when they are needed.
pub const IBV_ACCESS_ON_DEMAND: u32 = 1 << 6;
/// Writes may pass each other on the bus. Optional: ignored where unknown.
pub const IBV_ACCESS_RELAXED_ORDERING: u32 = 1 << 20;

/// `enum ibv_wr_opcode`.
pub type ibv_wr_opcode = c_int;
/// Write.
pub const IBV_WR_RDMA_WRITE: ibv_wr_opcode = 0;
/// Write with immediate data.
pub const IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_opcode = 1;
/// Send.
pub const IBV_WR_SEND: ibv_wr_opcode = 2;
/// Send with immediate data.
pub const IBV_WR_SEND_WITH_IMM: ibv_wr_opcode = 3;
/// Read.
pub const IBV_WR_RDMA_READ: ibv_wr_opcode = 4;
/// Compare and swap.
pub const IBV_WR_ATOMIC_CMP_AND_SWP: ibv_wr_opcode = 5;
/// Fetch and add.
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: ibv_wr_opcode = 6;

/// `enum ibv_send_flags`: after all reads and atomics before it.
pub const IBV_SEND_FENCE: u32 = 1 << 0;
/// With a completion.
pub const IBV_SEND_SIGNALED: u32 = 1 << 1;
/// The peer's completion is solicited.
pub const IBV_SEND_SOLICITED: u32 = 1 << 2;
/// Data are copied while posting.
pub const IBV_SEND_INLINE: u32 = 1 << 3;

/// `enum ibv_wc_status`.
pub type ibv_wc_status = c_int;
/// Success.
pub const IBV_WC_SUCCESS: ibv_wc_status = 0;
/// Local length error.
pub const IBV_WC_LOC_LEN_ERR: ibv_wc_status = 1;
/// Local queue pair operation error.
pub const IBV_WC_LOC_QP_OP_ERR: ibv_wc_status = 2;
/// Local protection error.
pub const IBV_WC_LOC_PROT_ERR: ibv_wc_status = 4;
/// Flushed.
pub const IBV_WC_WR_FLUSH_ERR: ibv_wc_status = 5;
/// Bad response.
pub const IBV_WC_BAD_RESP_ERR: ibv_wc_status = 7;
/// Local access error.
pub const IBV_WC_LOC_ACCESS_ERR: ibv_wc_status = 8;
/// Remote invalid request.
pub const IBV_WC_REM_INV_REQ_ERR: ibv_wc_status = 9;
/// Remote access error.
pub const IBV_WC_REM_ACCESS_ERR: ibv_wc_status = 10;
/// Remote operation error.
pub const IBV_WC_REM_OP_ERR: ibv_wc_status = 11;
/// Retries exceeded.
pub const IBV_WC_RETRY_EXC_ERR: ibv_wc_status = 12;
/// RNR retries exceeded.
pub const IBV_WC_RNR_RETRY_EXC_ERR: ibv_wc_status = 13;
/// Fatal error.
pub const IBV_WC_FATAL_ERR: ibv_wc_status = 19;

/// `enum ibv_wc_opcode`.
pub type ibv_wc_opcode = c_int;
/// Send.
pub const IBV_WC_SEND: ibv_wc_opcode = 0;
/// Write.
pub const IBV_WC_RDMA_WRITE: ibv_wc_opcode = 1;
/// Read.
pub const IBV_WC_RDMA_READ: ibv_wc_opcode = 2;
/// Compare and swap.
pub const IBV_WC_COMP_SWAP: ibv_wc_opcode = 3;
/// Fetch and add.
pub const IBV_WC_FETCH_ADD: ibv_wc_opcode = 4;
/// Receive, filled by a send.
pub const IBV_WC_RECV: ibv_wc_opcode = 128;
/// Receive, taken by a write with immediate data.
pub const IBV_WC_RECV_RDMA_WITH_IMM: ibv_wc_opcode = 129;

/// `enum ibv_wc_flags`: the first 40 bytes are a global route header.
pub const IBV_WC_GRH: u32 = 1 << 0;
/// There are immediate data.
pub const IBV_WC_WITH_IMM: u32 = 1 << 1;

/// `enum ibv_event_type`.
pub type ibv_event_type = c_int;
/// Completion queue broken.
pub const IBV_EVENT_CQ_ERR: ibv_event_type = 0;
/// Queue pair broken.
pub const IBV_EVENT_QP_FATAL: ibv_event_type = 1;
/// Invalid request of the peer.
pub const IBV_EVENT_QP_REQ_ERR: ibv_event_type = 2;
/// Access violation of the peer.
pub const IBV_EVENT_QP_ACCESS_ERR: ibv_event_type = 3;
/// First packet before RTS.
pub const IBV_EVENT_COMM_EST: ibv_event_type = 4;
/// Send queue drained.
pub const IBV_EVENT_SQ_DRAINED: ibv_event_type = 5;
/// Device broken, or gone.
pub const IBV_EVENT_DEVICE_FATAL: ibv_event_type = 8;
/// Port up.
pub const IBV_EVENT_PORT_ACTIVE: ibv_event_type = 9;
/// Port down.
pub const IBV_EVENT_PORT_ERR: ibv_event_type = 10;
/// Another LID.
pub const IBV_EVENT_LID_CHANGE: ibv_event_type = 11;
/// Other partition keys.
pub const IBV_EVENT_PKEY_CHANGE: ibv_event_type = 12;
/// Another subnet manager.
pub const IBV_EVENT_SM_CHANGE: ibv_event_type = 13;
/// Shared receive queue broken.
pub const IBV_EVENT_SRQ_ERR: ibv_event_type = 14;
/// Shared receive queue below its limit.
pub const IBV_EVENT_SRQ_LIMIT_REACHED: ibv_event_type = 15;
/// Last receive of a queue pair in error.
pub const IBV_EVENT_QP_LAST_WQE_REACHED: ibv_event_type = 16;
/// Register with the subnet manager again.
pub const IBV_EVENT_CLIENT_REREGISTER: ibv_event_type = 17;
/// Other GIDs.
pub const IBV_EVENT_GID_CHANGE: ibv_event_type = 18;
