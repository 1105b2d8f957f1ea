//! C enums as integers; values from `infiniband/verbs.h`, compared with it by `check-layout.sh`.

use core::ffi::c_int;

/// Constants of one type.
macro_rules! values {
    ($type:ty: $($(#[$doc:meta])* $name:ident = $value:expr;)*) => { $($(#[$doc])* pub const $name: $type = $value;)* };
}

/// `enum ibv_node_type`.
pub type ibv_node_type = c_int;
values! { ibv_node_type:
    /// The provider gives none.
    IBV_NODE_UNKNOWN = -1;
    /// InfiniBand or RoCE channel adapter.
    IBV_NODE_CA = 1;
    /// InfiniBand switch.
    IBV_NODE_SWITCH = 2;
    /// InfiniBand router.
    IBV_NODE_ROUTER = 3;
    /// iWARP NIC.
    IBV_NODE_RNIC = 4;
    /// usNIC.
    IBV_NODE_USNIC = 5;
    /// usNIC over UDP.
    IBV_NODE_USNIC_UDP = 6;
    /// A device of no standard sort (EFA for one).
    IBV_NODE_UNSPECIFIED = 7;
}

/// `enum ibv_transport_type`.
pub type ibv_transport_type = c_int;
values! { ibv_transport_type:
    /// InfiniBand transport: InfiniBand and RoCE.
    IBV_TRANSPORT_IB = 0;
    /// iWARP.
    IBV_TRANSPORT_IWARP = 1;
}

/// `enum ibv_atomic_cap`.
pub type ibv_atomic_cap = c_int;
values! { ibv_atomic_cap:
    /// No atomics.
    IBV_ATOMIC_NONE = 0;
    /// Atomic among the queue pairs of this device.
    IBV_ATOMIC_HCA = 1;
    /// Atomic with the processors too.
    IBV_ATOMIC_GLOB = 2;
}

values! { u32:
    /// `ibv_device_attr::device_cap_flags`: the device has XRC.
    IBV_DEVICE_XRC = 1 << 20;
}

/// `enum ibv_port_state`.
pub type ibv_port_state = c_int;
values! { ibv_port_state:
    /// No state change.
    IBV_PORT_NOP = 0;
    /// No link.
    IBV_PORT_DOWN = 1;
    /// The link is up, the subnet manager has not configured it.
    IBV_PORT_INIT = 2;
    /// Configured, not yet active.
    IBV_PORT_ARMED = 3;
    /// In service.
    IBV_PORT_ACTIVE = 4;
    /// In service, link down for the moment.
    IBV_PORT_ACTIVE_DEFER = 5;
}

/// `enum ibv_mtu`.
pub type ibv_mtu = c_int;
values! { ibv_mtu:
    /// 256 bytes.
    IBV_MTU_256 = 1;
    /// 512 bytes.
    IBV_MTU_512 = 2;
    /// 1024 bytes.
    IBV_MTU_1024 = 3;
    /// 2048 bytes.
    IBV_MTU_2048 = 4;
    /// 4096 bytes.
    IBV_MTU_4096 = 5;
}

values! { u8:
    /// `ibv_port_attr::link_layer`: not given; by convention InfiniBand.
    IBV_LINK_LAYER_UNSPECIFIED = 0;
    /// InfiniBand.
    IBV_LINK_LAYER_INFINIBAND = 1;
    /// Ethernet (RoCE, iWARP).
    IBV_LINK_LAYER_ETHERNET = 2;

    /// `ibv_port_attr::flags`: nothing goes without a global route header.
    IBV_QPF_GRH_REQUIRED = 1 << 0;
}

values! { u32:
    /// `ibv_gid_entry::gid_type`: InfiniBand.
    IBV_GID_TYPE_IB = 0;
    /// RoCE version 1: Ethernet frames, one broadcast domain.
    IBV_GID_TYPE_ROCE_V1 = 1;
    /// RoCE version 2: UDP, routable.
    IBV_GID_TYPE_ROCE_V2 = 2;
}

/// `enum ibv_qp_type`.
pub type ibv_qp_type = c_int;
values! { ibv_qp_type:
    /// Reliable connection.
    IBV_QPT_RC = 2;
    /// Unreliable datagram.
    IBV_QPT_UD = 4;
    /// Sending half of an extended reliable connection.
    IBV_QPT_XRC_SEND = 9;
    /// Receiving half of one.
    IBV_QPT_XRC_RECV = 10;
}

/// `enum ibv_qp_state`.
pub type ibv_qp_state = c_int;
values! { ibv_qp_state:
    /// As made.
    IBV_QPS_RESET = 0;
    /// Receives may be posted.
    IBV_QPS_INIT = 1;
    /// Ready to receive.
    IBV_QPS_RTR = 2;
    /// Ready to send.
    IBV_QPS_RTS = 3;
    /// Send queue drained.
    IBV_QPS_SQD = 4;
    /// Send queue in error.
    IBV_QPS_SQE = 5;
    /// In error.
    IBV_QPS_ERR = 6;
}

values! { c_int:
    /// `enum ibv_qp_attr_mask`: the state.
    IBV_QP_STATE = 1 << 0;
    /// The state that it is thought to be in.
    IBV_QP_CUR_STATE = 1 << 1;
    /// Whether an event reports the drained send queue.
    IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2;
    /// The peer's permitted accesses.
    IBV_QP_ACCESS_FLAGS = 1 << 3;
    /// Partition key.
    IBV_QP_PKEY_INDEX = 1 << 4;
    /// Port.
    IBV_QP_PORT = 1 << 5;
    /// Queue key.
    IBV_QP_QKEY = 1 << 6;
    /// Address.
    IBV_QP_AV = 1 << 7;
    /// Bytes in a packet.
    IBV_QP_PATH_MTU = 1 << 8;
    /// Time to wait for an acknowledgment.
    IBV_QP_TIMEOUT = 1 << 9;
    /// Retries.
    IBV_QP_RETRY_CNT = 1 << 10;
    /// Retries after RNR.
    IBV_QP_RNR_RETRY = 1 << 11;
    /// First packet sequence number received.
    IBV_QP_RQ_PSN = 1 << 12;
    /// Reads and atomics open at once.
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
    /// RNR timer.
    IBV_QP_MIN_RNR_TIMER = 1 << 15;
    /// First packet sequence number sent.
    IBV_QP_SQ_PSN = 1 << 16;
    /// Reads and atomics served at once.
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
    /// Sizes.
    IBV_QP_CAP = 1 << 19;
    /// The peer's queue pair.
    IBV_QP_DEST_QPN = 1 << 20;
}

values! { u32:
    /// `enum ibv_qp_init_attr_mask`: `pd` is given.
    IBV_QP_INIT_ATTR_PD = 1 << 0;
    /// `xrcd` is given.
    IBV_QP_INIT_ATTR_XRCD = 1 << 1;

    /// `enum ibv_qp_open_attr_mask`: `qp_num` is given.
    IBV_QP_OPEN_ATTR_NUM = 1 << 0;
    /// `xrcd` is given.
    IBV_QP_OPEN_ATTR_XRCD = 1 << 1;
    /// `qp_context` is given.
    IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2;
    /// `qp_type` is given.
    IBV_QP_OPEN_ATTR_TYPE = 1 << 3;
}

values! { c_int:
    /// `enum ibv_srq_type`: an ordinary one.
    IBV_SRQT_BASIC = 0;
    /// One for XRC.
    IBV_SRQT_XRC = 1;
}

values! { u32:
    /// `enum ibv_srq_init_attr_mask`: `srq_type` is given.
    IBV_SRQ_INIT_ATTR_TYPE = 1 << 0;
    /// `pd` is given.
    IBV_SRQ_INIT_ATTR_PD = 1 << 1;
    /// `xrcd` is given.
    IBV_SRQ_INIT_ATTR_XRCD = 1 << 2;
    /// `cq` is given.
    IBV_SRQ_INIT_ATTR_CQ = 1 << 3;
}

values! { c_int:
    /// `enum ibv_srq_attr_mask`: the limit.
    IBV_SRQ_LIMIT = 1 << 1;
}

values! { u32:
    /// `enum ibv_xrcd_init_attr_mask`: `fd` is given.
    IBV_XRCD_INIT_ATTR_FD = 1 << 0;
    /// `oflags` is given.
    IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1;

    /// `enum ibv_access_flags`: local writes.
    IBV_ACCESS_LOCAL_WRITE = 1 << 0;
    /// Remote writes.
    IBV_ACCESS_REMOTE_WRITE = 1 << 1;
    /// Remote reads.
    IBV_ACCESS_REMOTE_READ = 1 << 2;
    /// Remote atomics.
    IBV_ACCESS_REMOTE_ATOMIC = 1 << 3;
    /// Pages are brought in when they are needed.
    IBV_ACCESS_ON_DEMAND = 1 << 6;
    /// Writes may pass each other on the bus. Optional: ignored where unknown.
    IBV_ACCESS_RELAXED_ORDERING = 1 << 20;
}

/// `enum ibv_wr_opcode`.
pub type ibv_wr_opcode = c_int;
values! { ibv_wr_opcode:
    /// Write.
    IBV_WR_RDMA_WRITE = 0;
    /// Write with immediate data.
    IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    /// Send.
    IBV_WR_SEND = 2;
    /// Send with immediate data.
    IBV_WR_SEND_WITH_IMM = 3;
    /// Read.
    IBV_WR_RDMA_READ = 4;
    /// Compare and swap.
    IBV_WR_ATOMIC_CMP_AND_SWP = 5;
    /// Fetch and add.
    IBV_WR_ATOMIC_FETCH_AND_ADD = 6;
}

values! { u32:
    /// `enum ibv_send_flags`: after all reads and atomics before it.
    IBV_SEND_FENCE = 1 << 0;
    /// With a completion.
    IBV_SEND_SIGNALED = 1 << 1;
    /// The peer's completion is solicited.
    IBV_SEND_SOLICITED = 1 << 2;
    /// Data are copied while posting.
    IBV_SEND_INLINE = 1 << 3;
}

/// `enum ibv_wc_status`.
pub type ibv_wc_status = c_int;
values! { ibv_wc_status:
    /// Success.
    IBV_WC_SUCCESS = 0;
    /// Local length error.
    IBV_WC_LOC_LEN_ERR = 1;
    /// Local queue pair operation error.
    IBV_WC_LOC_QP_OP_ERR = 2;
    /// Local protection error.
    IBV_WC_LOC_PROT_ERR = 4;
    /// Flushed.
    IBV_WC_WR_FLUSH_ERR = 5;
    /// Bad response.
    IBV_WC_BAD_RESP_ERR = 7;
    /// Local access error.
    IBV_WC_LOC_ACCESS_ERR = 8;
    /// Remote invalid request.
    IBV_WC_REM_INV_REQ_ERR = 9;
    /// Remote access error.
    IBV_WC_REM_ACCESS_ERR = 10;
    /// Remote operation error.
    IBV_WC_REM_OP_ERR = 11;
    /// Retries exceeded.
    IBV_WC_RETRY_EXC_ERR = 12;
    /// RNR retries exceeded.
    IBV_WC_RNR_RETRY_EXC_ERR = 13;
    /// Fatal error.
    IBV_WC_FATAL_ERR = 19;
}

/// `enum ibv_wc_opcode`.
pub type ibv_wc_opcode = c_int;
values! { ibv_wc_opcode:
    /// Send.
    IBV_WC_SEND = 0;
    /// Write.
    IBV_WC_RDMA_WRITE = 1;
    /// Read.
    IBV_WC_RDMA_READ = 2;
    /// Compare and swap.
    IBV_WC_COMP_SWAP = 3;
    /// Fetch and add.
    IBV_WC_FETCH_ADD = 4;
    /// Receive, filled by a send.
    IBV_WC_RECV = 128;
    /// Receive, taken by a write with immediate data.
    IBV_WC_RECV_RDMA_WITH_IMM = 129;
}

values! { u32:
    /// `enum ibv_wc_flags`: the first 40 bytes are a global route header.
    IBV_WC_GRH = 1 << 0;
    /// There are immediate data.
    IBV_WC_WITH_IMM = 1 << 1;
}

/// `enum ibv_event_type`.
pub type ibv_event_type = c_int;
values! { ibv_event_type:
    /// Completion queue broken.
    IBV_EVENT_CQ_ERR = 0;
    /// Queue pair broken.
    IBV_EVENT_QP_FATAL = 1;
    /// Invalid request of the peer.
    IBV_EVENT_QP_REQ_ERR = 2;
    /// Access violation of the peer.
    IBV_EVENT_QP_ACCESS_ERR = 3;
    /// First packet before RTS.
    IBV_EVENT_COMM_EST = 4;
    /// Send queue drained.
    IBV_EVENT_SQ_DRAINED = 5;
    /// Device broken, or gone.
    IBV_EVENT_DEVICE_FATAL = 8;
    /// Port up.
    IBV_EVENT_PORT_ACTIVE = 9;
    /// Port down.
    IBV_EVENT_PORT_ERR = 10;
    /// Another LID.
    IBV_EVENT_LID_CHANGE = 11;
    /// Other partition keys.
    IBV_EVENT_PKEY_CHANGE = 12;
    /// Another subnet manager.
    IBV_EVENT_SM_CHANGE = 13;
    /// Shared receive queue broken.
    IBV_EVENT_SRQ_ERR = 14;
    /// Shared receive queue below its limit.
    IBV_EVENT_SRQ_LIMIT_REACHED = 15;
    /// Last receive of a queue pair in error.
    IBV_EVENT_QP_LAST_WQE_REACHED = 16;
    /// Register with the subnet manager again.
    IBV_EVENT_CLIENT_REREGISTER = 17;
    /// Other GIDs.
    IBV_EVENT_GID_CHANGE = 18;
}
