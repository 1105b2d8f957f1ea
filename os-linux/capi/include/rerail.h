/* rerail: a message transport over all rails between processes. Link with -lrerail_c.
 *
 * A process opens a transport, publishes its name (64 bytes), collects the names of all processes of the job, and joins. Its
 * rank is then the place of its name among all names in sorted order. Or it joins without names and inserts those of others
 * when it learns them (rerail_insert). Any process with its name can connect.
 *
 *     rerail *t = NULL;
 *     char why[200];
 *     if (rerail_open(&t, why, sizeof why)) ...
 *     rerail_name(t, name);                        publish it, collect all
 *     if (rerail_join(t, names, count)) puts(rerail_error(t));
 *     rerail_recv(t, RERAIL_ANY, 7, 0, buffer, sizeof buffer, 1, NULL);
 *     rerail_send(t, 1, 7, 0, "hello", 5, 2, NULL);
 *     for (;;) { rerail_progress(t); while (rerail_poll(t, &event, 1)) ... }
 *     rerail_close(t, 1000);
 *
 * Functions of type int return 0 (rerail_arm: 0 or 1) or a negative RERAIL_E... number;
 * rerail_error then returns the reason as text. A transport belongs to one thread at a time; there is no global state
 * and no thread: messages move, and peers are answered, only in rerail_progress. Rails are shared memory and TCP, no
 * verbs.
 * Memory that a request names is the transport's until the request's event with RERAIL_LAST. */
#ifndef RERAIL_H
#define RERAIL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RERAIL_VERSION 1
#define RERAIL_NAME_BYTES 64
/* From any rank. */
#define RERAIL_ANY UINT32_MAX

enum {
    RERAIL_EINVAL = -1,    /* arguments that make no sense */
    RERAIL_EAGAIN = -2,    /* no room now: drive the transport, take events, try again */
    RERAIL_ESTATE = -3,    /* not joined yet, or joined already */
    RERAIL_ESYSTEM = -4,   /* the system refused */
    RERAIL_EPEER = -5,     /* the peer is lost or has closed */
    RERAIL_ETRUNCATED = -6, /* of an event: the message was longer than the buffer, whose bytes are filled */
    RERAIL_ECANCELLED = -7, /* of an event */
    RERAIL_EREFUSED = -8,  /* of an event: the peer refused the access */
    RERAIL_EPANIC = -9     /* an error of the library: close the transport */
};

/* What an event is about. */
enum {
    RERAIL_COMPLETED = 1,   /* a request */
    RERAIL_PEER_UP = 2,     /* a connection to the peer is up */
    RERAIL_PEER_CLOSED = 3, /* the peer has closed */
    RERAIL_PEER_LOST = 4,   /* the peer is lost; rerail_error returns why */
    RERAIL_CALLER = 5,      /* a process whose name is not inserted has called: rerail_caller */
    RERAIL_WRITTEN = 6      /* a put with immediate data into a window: cookie is its key, tag the offset */
};

/* What a completed request was. */
enum {
    RERAIL_SEND = 1,
    RERAIL_RECV = 2,
    RERAIL_PUT = 3,
    RERAIL_GET = 4,
    RERAIL_ATOMIC = 5,
    RERAIL_FLUSH = 6
};

/* Flags of an event. */
enum {
    RERAIL_LAST = 1,      /* the request's memory is the caller's again */
    RERAIL_IMMEDIATE = 2, /* immediate data came with the message */
    RERAIL_TAGGED = 4     /* the message has a tag */
};

typedef struct rerail rerail;

typedef struct rerail_event {
    uint64_t cookie;    /* the request's */
    uint64_t bytes;     /* moved; of a truncated message: all that it has */
    uint64_t tag;       /* of a received message */
    uint64_t immediate; /* of a received message; of an atomic: the value before it, in the low bytes */
    int32_t status;     /* 0, or RERAIL_E... */
    uint16_t kind;      /* RERAIL_COMPLETED and so on */
    uint16_t request;   /* of a completed one: RERAIL_SEND and so on */
    uint32_t peer;      /* the other side, where there is one */
    uint32_t flags;     /* RERAIL_LAST and so on */
} rerail_event;

/* Opens the rails that the settings (environment variables RERAIL_...) name. Where that fails the reason is written to `why`,
 * at most `why_bytes` with a zero at the end. */
int rerail_open(rerail **transport, char *why, size_t why_bytes);
/* This process's name. */
int rerail_name(const rerail *transport, uint8_t name[RERAIL_NAME_BYTES]);
/* Begins with `count` names, this process's among them, in any order; no connection is made. 0 names: this process is number
 * 0, and others are inserted. */
int rerail_join(rerail *transport, const uint8_t *names, size_t count);
/* The number of ranks (after a join without names: for how many there is room), this process's, and that of a name. */
int rerail_size(const rerail *transport, uint32_t *size);
int rerail_rank(const rerail *transport, uint32_t *rank);
int rerail_rank_of(const rerail *transport, const uint8_t name[RERAIL_NAME_BYTES], uint32_t *rank);
/* Makes the process of a name a peer, at any time, in any order; `peer`, unless NULL, gets its number, which is this process's
 * own. What the peer has sent before is received. RERAIL_EAGAIN: there is no room (RERAIL_PEERS), or the same name is being
 * removed. */
int rerail_insert(rerail *transport, const uint8_t name[RERAIL_NAME_BYTES], uint32_t *peer);
/* The name of a peer. */
int rerail_name_of(const rerail *transport, uint32_t peer, uint8_t name[RERAIL_NAME_BYTES]);
/* Closes a peer and forgets it, in later rerail_progress calls. To reconnect, both processes remove each other first. */
int rerail_remove(rerail *transport, uint32_t peer);
/* The process of the last RERAIL_CALLER event (RERAIL_CALLERS=hold, the default), which waits: insert it, or refuse it. */
int rerail_caller(const rerail *transport, uint8_t name[RERAIL_NAME_BYTES]);
int rerail_refuse(rerail *transport, const uint8_t name[RERAIL_NAME_BYTES]);

/* Messages. `request`, unless NULL, gets a number for rerail_cancel. A send is complete when its buffer may be used again. */
int rerail_send(rerail *transport, uint32_t peer, uint64_t tag, uint64_t immediate, const void *bytes, size_t count,
    uint64_t cookie, uint64_t *request);
/* The same, where more follow to the same peer at once: it may be held to leave with them, until the next request of another
 * kind or rerail_progress. */
int rerail_send_more(rerail *transport, uint32_t peer, uint64_t tag, uint64_t immediate, const void *bytes, size_t count,
    uint64_t cookie, uint64_t *request);
/* The same as rerail_send, of a copy, without an event: at most rerail_inject_max bytes. */
int rerail_inject(rerail *transport, uint32_t peer, uint64_t tag, uint64_t immediate, const void *bytes, size_t count);
size_t rerail_inject_max(const rerail *transport);
/* Takes a message whose tag is `tag` in all bits that are 0 in `ignore`. */
int rerail_recv(rerail *transport, uint32_t peer, uint64_t tag, uint64_t ignore, void *bytes, size_t count,
    uint64_t cookie, uint64_t *request);
int rerail_cancel(rerail *transport, uint64_t request);

/* One-sided access: memory that peers may read and write under a key, which the application sends them. Keys that others must
 * not guess: rerail_random_key. */
int rerail_random_key(const rerail *transport, uint64_t *key);
int rerail_expose(rerail *transport, void *bytes, size_t count, uint64_t key, uint64_t *window);
int rerail_deregister(rerail *transport, uint64_t window);
int rerail_put(rerail *transport, uint32_t peer, uint64_t key, uint64_t offset, const void *bytes, size_t count,
    uint64_t cookie, uint64_t *request);
/* A put whose target is notified once all bytes are in place, by RERAIL_WRITTEN or the window's counter; complete when the
 * target has taken that event, or its counter counts. */
int rerail_put_immediate(rerail *transport, uint32_t peer, uint64_t key, uint64_t offset, uint64_t immediate, const void *bytes,
    size_t count, uint64_t cookie, uint64_t *request);
/* A put of a copy, without an event unless it fails: at most rerail_inject_max bytes. rerail_flush reports when all earlier puts
 * and gets of this process to the peer are complete. */
int rerail_inject_put(rerail *transport, uint32_t peer, uint64_t key, uint64_t offset, const void *bytes, size_t count);
int rerail_flush(rerail *transport, uint32_t peer, uint64_t cookie, uint64_t *request);
/* As rerail_expose, but puts with immediate data add 1 to a counter (from 0 to RERAIL_COUNTERS - 1) instead. */
int rerail_expose_counted(rerail *transport, void *bytes, size_t count, uint64_t key, uint16_t counter, uint64_t *window);
int rerail_counter(const rerail *transport, uint16_t counter, uint64_t *value);
int rerail_get(rerail *transport, uint32_t peer, uint64_t key, uint64_t offset, void *bytes, size_t count,
    uint64_t cookie, uint64_t *request);

/* Atomics, one value at a time: what is done, and on which type. */
enum {
    RERAIL_SUM = 1,
    RERAIL_PROD = 2,
    RERAIL_MIN = 3,
    RERAIL_MAX = 4,
    RERAIL_BAND = 5, /* of integers only, as the next two */
    RERAIL_BOR = 6,
    RERAIL_BXOR = 7,
    RERAIL_LAND = 8,
    RERAIL_LOR = 9,
    RERAIL_LXOR = 10,
    RERAIL_FETCH = 11,
    RERAIL_SWAP = 12,
    RERAIL_CSWAP = 13, /* where the comparand equals the value; the next ones: is not equal, is at most the value ... */
    RERAIL_CSWAP_NE = 14,
    RERAIL_CSWAP_LE = 15,
    RERAIL_CSWAP_LT = 16,
    RERAIL_CSWAP_GE = 17,
    RERAIL_CSWAP_GT = 18,
    RERAIL_MSWAP = 19 /* the bits that are 1 in the comparand; of integers only */
};
enum {
    RERAIL_INT8 = 1,
    RERAIL_UINT8 = 2,
    RERAIL_INT16 = 3,
    RERAIL_UINT16 = 4,
    RERAIL_INT32 = 5,
    RERAIL_UINT32 = 6,
    RERAIL_INT64 = 7,
    RERAIL_UINT64 = 8,
    RERAIL_FLOAT = 9,
    RERAIL_DOUBLE = 10
};
/* Changes the value at `offset`, whose address there is a multiple of its size; operand and comparand are in the low bytes, and
 * the event's `immediate` has the value before. Complete when that is here. */
int rerail_atomic(rerail *transport, uint32_t peer, uint64_t key, uint64_t offset, int kind, int type, uint64_t operand,
    uint64_t compare, uint64_t cookie, uint64_t *request);
/* The next put, get or atomic to the peer, and all later ones, wait until all earlier ones are complete there. */
int rerail_fence(rerail *transport, uint32_t peer);

/* Drives the transport for a round, without waiting; returns how many things happened. */
size_t rerail_progress(rerail *transport);
/* Takes at most `max` events; returns how many. */
size_t rerail_poll(rerail *transport, rerail_event *events, size_t max);
/* Completion queues, so that libraries can share a transport: the completions of requests whose cookies rerail_queue_cookie made
 * come by rerail_queue_poll, all others by rerail_poll; what is about a peer comes in every queue. A full queue holds up the
 * others. Values have at most 56 bits; RERAIL_COOKIE_VALUE is an event's. */
#define RERAIL_COOKIE_VALUE(cookie) ((uint64_t)(cookie) & UINT64_C(0xffffffffffffff))
int rerail_queue_open(rerail *transport, size_t events_max, uint32_t *queue);
int rerail_queue_cookie(const rerail *transport, uint32_t queue, uint64_t value, uint64_t *cookie);
size_t rerail_queue_poll(rerail *transport, uint32_t queue, rerail_event *events, size_t max);
/* Sleeps until there is something to do, at most `ms` milliseconds; below 0: as long as it takes. */
int rerail_wait(rerail *transport, int ms);
/* For event loops: a descriptor to wait on for reading, between rerail_arm, which returns 1 where one may sleep and 0 where
 * there is something to do already, and rerail_disarm. */
int rerail_fd(const rerail *transport, int *fd);
int rerail_arm(rerail *transport);
int rerail_disarm(rerail *transport);

/* Why the last call failed, or the last peer was lost, in words; valid until the next call. */
const char *rerail_error(const rerail *transport);
/* Leaves all peers once what was sent to them is acknowledged, at most `ms` milliseconds later, and frees the transport. */
int rerail_close(rerail *transport, int ms);

#ifdef __cplusplus
}
#endif

#endif
