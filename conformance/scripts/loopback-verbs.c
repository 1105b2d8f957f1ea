/* A libibverbs of one device that costs nothing: `wire0`, an InfiniBand port whose packets arrive while they are posted.
 *
 * For conformance/scripts/driver-instructions.sh, which counts what this project does around a device's work, and for
 * conformance/scripts/device-quirks.sh. It behaves as far as two ranks of one process need it to: reliable connections,
 * datagrams, shared receive queues, sends, writes, reads. Nothing is ever lost or late; what an honest program does not do
 * ends it with a message. Compiled against the headers of libibverbs-dev, with the symbol versions that they stand for.
 *
 * WIRE0 in the environment, words with commas between: what real devices do and this one does not by itself.
 *
 *   scatter    a receive of up to 64 bytes comes inside its completion; the poll copies it to the request's address, as a
 *              pointer (mlx5: mlx5_copy_to_recv_srq); a device that is closed reports on stderr how many did
 *   no-inline  queue pairs are made with whatever length is requested inline, and take nothing inline (rdmavt)
 *   ethernet   the port is one of RoCE, and reports 1 as its LID (irdma)
 *   grh        the InfiniBand port takes no path without a global route (mlx5, virtual functions)
 *   no-lid     the InfiniBand port has no LID
 *   no-srq     no shared receive queues
 *   no-ud      no datagram queue pairs
 *   iwarp      an iWARP adapter
 *   vendor     neither InfiniBand nor iWARP (usNIC, EFA)
 *   no-gid     the port's table of GIDs is empty
 *   locked     completion queues are refused: no more memory may be locked
 *   sick-port  of two ports, the first can't be queried
 *   no-fork    ibv_fork_init fails
 *   `tell`     a device that is closed reports on stderr how often ibv_fork_init was called
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

enum { RING = 8192, QPS = 4096, MRS = 4096, ROUTE_HEADER = 40, INSIDE = 64 };

/* A queue: `head` counts what was taken, `tail` what was put in. */
#define QUEUE(type) struct { unsigned head, tail; type entries[RING]; }

struct receive { uint64_t id; struct ibv_sge sge; };
struct srq { struct ibv_srq base; QUEUE(struct receive) waiting; };
/* `to`: where a message goes that came inside, with it. */
struct done { struct ibv_wc wc; void *to; char inside[INSIDE]; };
struct cq { struct ibv_cq base; QUEUE(struct done) done; };
struct qp { struct ibv_qp base; struct ibv_qp_attr attr; QUEUE(struct receive) waiting; };

static struct ibv_device device = {
    .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "wire0", .dev_name = "uverbs-wire0",
};
static struct qp *qps[QPS];
static uint32_t qps_made;
/* Registrations by their keys; addresses that they are named by. */
static struct { struct ibv_mr *mr; uint64_t from; } mrs[MRS];
static struct {
    int is_known, scatter, no_inline, ethernet, grh, no_lid, no_srq, no_ud, iwarp, vendor, no_gid, locked, sick_port, no_fork, tell;
} quirks;
static unsigned long scattered, registered, fork_inits;

static void learn_quirks(void)
{
    const struct { const char *name; int *is_on; } known[] = {
        { "scatter", &quirks.scatter }, { "no-inline", &quirks.no_inline }, { "ethernet", &quirks.ethernet },
        { "grh", &quirks.grh }, { "no-lid", &quirks.no_lid }, { "no-srq", &quirks.no_srq }, { "no-ud", &quirks.no_ud },
        { "iwarp", &quirks.iwarp }, { "vendor", &quirks.vendor }, { "no-gid", &quirks.no_gid },
        { "locked", &quirks.locked }, { "sick-port", &quirks.sick_port }, { "no-fork", &quirks.no_fork },
        { "tell", &quirks.tell },
    };
    const char *words = getenv("WIRE0");
    char list[256] = "";
    if (quirks.is_known++) return;
    if (words && strlen(words) < sizeof list) strcpy(list, words);
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        size_t n = 0, all = sizeof known / sizeof *known;
        while (n < all && strcmp(known[n].name, word)) n++;
        if (n == all) {
            fprintf(stderr, "wire0: WIRE0: no such word: %s\n", word);
            abort();
        }
        *known[n].is_on = 1;
    }
}

static void wrong(const char *what)
{
    fprintf(stderr, "wire0: %s\n", what);
    abort();
}

static void *make(size_t bytes)
{
    void *made = calloc(1, bytes);
    if (!made) wrong("no memory");
    return made;
}

/* ---- the path of messages */

static void complete(struct ibv_cq *cq, struct ibv_wc wc)
{
    struct cq *to = (struct cq *)cq;
    if (to->done.tail - to->done.head == RING) wrong("completion queue overrun");
    struct done *done = &to->done.entries[to->done.tail++ % RING];
    done->wc = wc, done->to = NULL;
}

/* The same of a receive whose message is with it. */
static void complete_inside(struct ibv_cq *cq, struct ibv_wc wc, void *to, const char *message)
{
    complete(cq, wc);
    struct cq *of = (struct cq *)cq;
    struct done *done = &of->done.entries[(of->done.tail - 1) % RING];
    done->to = to;
    memcpy(done->inside, message, wc.byte_len);
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *into)
{
    struct cq *of = (struct cq *)cq;
    int taken = 0;
    while (taken < most && of->done.head != of->done.tail) {
        struct done *done = &of->done.entries[of->done.head++ % RING];
        if (done->to) {
            memcpy(done->to, done->inside, done->wc.byte_len);
            scattered++;
        }
        into[taken++] = done->wc;
    }
    return taken;
}

/* Registered memory by its key. */
static char *named(uint32_t key, uint64_t address, uint32_t length)
{
    struct ibv_mr *mr = key < MRS ? mrs[key].mr : NULL;
    if (!mr) wrong("a key that names nothing");
    uint64_t offset = address - mrs[key].from;
    if (offset > mr->length || length > mr->length - offset) wrong("an address outside of its registration");
    return (char *)mr->addr + offset;
}

static struct receive *next_receive(struct qp *qp)
{
    struct srq *srq = (struct srq *)qp->base.srq;
    if (srq) return srq->waiting.head == srq->waiting.tail ? NULL : &srq->waiting.entries[srq->waiting.head++ % RING];
    return qp->waiting.head == qp->waiting.tail ? NULL : &qp->waiting.entries[qp->waiting.head++ % RING];
}

/* Copies between a request's pieces and other memory; how many bytes. */
static uint32_t move(const struct ibv_send_wr *wr, char *other, int is_read)
{
    uint32_t moved = 0;
    for (int n = 0; n < wr->num_sge; n++) {
        const struct ibv_sge *sge = &wr->sg_list[n];
        int is_inline = wr->send_flags & IBV_SEND_INLINE;
        if (is_inline && quirks.no_inline) wrong("inline data, of which it takes none");
        char *own = is_inline ? (char *)(uintptr_t)sge->addr : named(sge->lkey, sge->addr, sge->length);
        memcpy(is_read ? own : other + moved, is_read ? other + moved : own, sge->length);
        moved += sge->length;
    }
    return moved;
}

static uint32_t length_of(const struct ibv_send_wr *wr)
{
    uint32_t bytes = 0;
    for (int n = 0; n < wr->num_sge; n++) bytes += wr->sg_list[n].length;
    return bytes;
}

static void send_one(struct qp *from, const struct ibv_send_wr *wr)
{
    int is_datagram = from->base.qp_type == IBV_QPT_UD;
    uint32_t number = is_datagram ? wr->wr.ud.remote_qpn : from->attr.dest_qp_num;
    struct qp *to = number < QPS ? qps[number] : NULL;
    struct receive *receive = to ? next_receive(to) : NULL;
    if (!receive && !is_datagram) wrong("a message that no receive expects");
    if (!receive) return;
    uint32_t front = is_datagram ? ROUTE_HEADER : 0, bytes = length_of(wr);
    if (front + bytes > receive->sge.length) wrong("a message longer than the receive");
    struct ibv_wc wc = { .wr_id = receive->id, .opcode = IBV_WC_RECV, .byte_len = front + bytes,
                         .qp_num = to->base.qp_num, .src_qp = from->base.qp_num };
    if (quirks.scatter && !is_datagram && bytes <= INSIDE) {
        char message[INSIDE];
        move(wr, message, 0);
        complete_inside(to->base.recv_cq, wc, (void *)(uintptr_t)receive->sge.addr, message);
        return;
    }
    move(wr, named(receive->sge.lkey, receive->sge.addr, front + bytes) + front, 0);
    complete(to->base.recv_cq, wc);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)bad;
    for (; wr; wr = wr->next) {
        struct ibv_wc wc = { .wr_id = wr->wr_id, .qp_num = qp->qp_num };
        char *remote = NULL;
        if (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_READ)
            remote = named(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, length_of(wr));
        switch (wr->opcode) {
        case IBV_WR_SEND: wc.opcode = IBV_WC_SEND; send_one((struct qp *)qp, wr); break;
        case IBV_WR_RDMA_WRITE: wc.opcode = IBV_WC_RDMA_WRITE; move(wr, remote, 0); break;
        case IBV_WR_RDMA_READ: wc.opcode = IBV_WC_RDMA_READ; wc.byte_len = move(wr, remote, 1); break;
        default: wrong("an operation that it does not have");
        }
        if (wr->send_flags & IBV_SEND_SIGNALED) complete(qp->send_cq, wc);
    }
    return 0;
}

static struct receive receive_of(const struct ibv_recv_wr *wr)
{
    if (wr->num_sge != 1) wrong("a receive that is not one piece of memory");
    struct receive receive = { wr->wr_id, *wr->sg_list };
    return receive;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct qp *to = (struct qp *)qp;
    (void)bad;
    for (; wr; wr = wr->next) to->waiting.entries[to->waiting.tail++ % RING] = receive_of(wr);
    return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct srq *to = (struct srq *)srq;
    (void)bad;
    for (; wr; wr = wr->next) to->waiting.entries[to->waiting.tail++ % RING] = receive_of(wr);
    return 0;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
    (void)cq, (void)solicited;
    return 0;
}

/* ---- the device */

struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = make(2 * sizeof *list);
    learn_quirks();
    if (quirks.iwarp) device.node_type = IBV_NODE_RNIC, device.transport_type = IBV_TRANSPORT_IWARP;
    if (quirks.vendor) device.node_type = IBV_NODE_UNSPECIFIED, device.transport_type = IBV_TRANSPORT_UNSPECIFIED;
    list[0] = &device;
    if (count) *count = 1;
    return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }

__be64 ibv_get_device_guid(struct ibv_device *of)
{
    (void)of;
    return 1;
}

struct ibv_context *ibv_open_device(struct ibv_device *of)
{
    struct ibv_context *context = make(sizeof *context);
    context->device = of;
    context->async_fd = eventfd(0, 0);
    context->ops.poll_cq = poll_cq;
    context->ops.req_notify_cq = req_notify_cq;
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.post_srq_recv = post_srq_recv;
    return context;
}

int ibv_fork_init(void)
{
    learn_quirks();
    if (!fork_inits++ && registered) wrong("the first ibv_fork_init after memory was registered");
    return quirks.no_fork ? ENOSYS : 0;
}

int ibv_close_device(struct ibv_context *context)
{
    if (quirks.tell) fprintf(stderr, "wire0: %lu calls of ibv_fork_init\n", fork_inits);
    if (quirks.scatter) fprintf(stderr, "wire0: %lu messages came inside their completions\n", scattered);
    close(context->async_fd);
    free(context);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)context;
    struct ibv_device_attr wire0 = {
        .max_mr_size = ~0ull, .max_qp = QPS, .max_qp_wr = RING, .max_sge = 16, .max_cq = 64, .max_cqe = RING,
        .max_mr = 1 << 20, .max_pd = 64, .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16, .max_ah = 1 << 16, .max_srq = 64,
        .max_srq_wr = RING, .max_srq_sge = 1, .phys_port_cnt = 1,
    };
    *attr = wire0;
    if (quirks.no_srq) attr->max_srq = attr->max_srq_wr = attr->max_srq_sge = 0;
    attr->phys_port_cnt += quirks.sick_port;
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    (void)context;
    struct ibv_port_attr *into = (struct ibv_port_attr *)attr;
    if (quirks.sick_port && port == 1) return EIO;
    into->state = IBV_PORT_ACTIVE;
    into->max_mtu = into->active_mtu = IBV_MTU_1024;
    into->gid_tbl_len = 1;
    into->max_msg_sz = 1u << 30;
    into->lid = into->sm_lid = 1;
    into->active_width = 2;
    into->active_speed = 32;
    into->link_layer = quirks.ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    if (quirks.no_lid) into->lid = 0;
    if (quirks.grh) into->flags |= IBV_QPF_GRH_REQUIRED;
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    (void)context, (void)port, (void)index;
    memset(gid, 0, sizeof *gid);
    if (quirks.no_gid) return 0;
    gid->raw[0] = 0xfe, gid->raw[1] = 0x80, gid->raw[15] = 1;
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = make(sizeof *pd);
    pd->context = context;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t length, uint64_t from, unsigned access)
{
    (void)access;
    struct ibv_mr *mr = make(sizeof *mr);
    uint32_t key = 1;
    while (key < MRS && mrs[key].mr) key++;
    if (key == MRS) wrong("more registrations than it has keys");
    mr->context = pd->context, mr->pd = pd, mr->addr = at, mr->length = length;
    mr->lkey = mr->rkey = key;
    mrs[key].mr = mr, mrs[key].from = from;
    registered++;
    return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t length, int access)
{
    return ibv_reg_mr_iova2(pd, at, length, (uintptr_t)at, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    mrs[mr->lkey].mr = NULL;
    free(mr);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = make(sizeof *channel);
    channel->context = context;
    channel->fd = eventfd(0, 0);
    return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    close(channel->fd);
    free(channel);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
    (void)vector;
    if (quirks.locked) {
        errno = ENOMEM;
        return NULL;
    }
    struct cq *cq = make(sizeof *cq);
    cq->base.context = context, cq->base.cqe = cqe, cq->base.cq_context = cq_context, cq->base.channel = channel;
    return &cq->base;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    free(cq);
    return 0;
}

/* No process sleeps on it. */
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    (void)channel, (void)cq, (void)cq_context;
    errno = EAGAIN;
    return -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) { (void)cq, (void)count; }

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    (void)context, (void)event;
    errno = EAGAIN;
    return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    if (quirks.no_srq) {
        errno = ENOSYS;
        return NULL;
    }
    struct srq *srq = make(sizeof *srq);
    srq->base.context = pd->context, srq->base.pd = pd, srq->base.srq_context = attr->srq_context;
    return &srq->base;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    (void)srq, (void)attr, (void)mask;
    return 0;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
    (void)srq;
    attr->max_wr = RING, attr->max_sge = 1, attr->srq_limit = 0;
    return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
    free(srq);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    if (quirks.no_ud && init->qp_type == IBV_QPT_UD) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct qp *qp = make(sizeof *qp);
    if (quirks.no_inline) init->cap.max_inline_data = 0;
    if (++qps_made == QPS) wrong("more queue pairs than it has numbers");
    qp->base.context = pd->context, qp->base.pd = pd, qp->base.qp_context = init->qp_context;
    qp->base.send_cq = init->send_cq, qp->base.recv_cq = init->recv_cq, qp->base.srq = init->srq;
    qp->base.qp_num = qps_made, qp->base.qp_type = init->qp_type;
    qp->attr.cap = init->cap;
    qps[qps_made] = qp;
    return &qp->base;
}

static int path_fits(const struct ibv_ah_attr *path)
{
    return path->is_global || !(quirks.ethernet || quirks.grh);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct qp *of = (struct qp *)qp;
    /* As the kernel has it: on Ethernet there are no LIDs, and some ports take nothing without a global route. */
    if (mask & IBV_QP_AV && !path_fits(&attr->ah_attr)) return EINVAL;
    if (mask & IBV_QP_STATE) of->attr.qp_state = qp->state = attr->qp_state;
    if (mask & IBV_QP_DEST_QPN) of->attr.dest_qp_num = attr->dest_qp_num;
    return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    (void)mask, (void)init;
    *attr = ((struct qp *)qp)->attr;
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    qps[qp->qp_num] = NULL;
    free(qp);
    return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    if (!path_fits(attr)) {
        errno = EINVAL;
        return NULL;
    }
    struct ibv_ah *ah = make(sizeof *ah);
    ah->context = pd->context, ah->pd = pd;
    return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    free(ah);
    return 0;
}
