/* Two processes that exchange names through pipes, then messages, a put and a get. Exit: 0, or the line that failed. */
#include "rerail.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 1 << 20, TAG = 7 };

static rerail *transport;
static char *memory;
static int written;

static void check(int well, int line)
{
    if (!well) {
        fprintf(stderr, "process %d, line %d: %s\n", (int)getpid(), line, transport ? rerail_error(transport) : "");
        _exit(line % 250 + 1);
    }
}
#define CHECK(condition) check(condition, __LINE__)

/* The event of the request with this cookie; sleeps on the descriptor in between. */
static rerail_event completed(uint64_t cookie)
{
    rerail_event event;
    for (;;) {
        rerail_progress(transport);
        while (rerail_poll(transport, &event, 1)) {
            if (event.kind == RERAIL_COMPLETED) {
                CHECK(event.cookie == cookie);
                return event;
            }
            /* The other one closes after its last receive, which may be noticed before the own last send is. */
            if (event.kind == RERAIL_WRITTEN) {
                CHECK(event.cookie == 99 && event.bytes == 5 && event.tag == 200 && event.immediate == 77);
                CHECK(event.flags == RERAIL_IMMEDIATE && !memcmp(memory + 200, "event", 5) && !written++);
                continue;
            }
            CHECK(event.kind == RERAIL_PEER_UP || event.kind == RERAIL_PEER_CLOSED);
        }
        int fd = -1;
        CHECK(rerail_fd(transport, &fd) == 0);
        if (rerail_arm(transport) == 1) {
            struct pollfd wait = { .fd = fd, .events = POLLIN };
            poll(&wait, 1, 1000);
            CHECK(rerail_disarm(transport) == 0);
        }
    }
}

/* A message to each other through completion queues, and one beside them: none takes another's completion. */
static void queues(uint32_t peer)
{
    uint64_t keys[2] = { 0, 0 }, cookie = 0, beside = 0;
    uint32_t first = 0, second = 0;
    rerail_event event;
    char from[3] = "abc", to[3] = "";
    CHECK(rerail_random_key(transport, &keys[0]) == 0 && rerail_random_key(transport, &keys[1]) == 0 && keys[0] != keys[1]);
    CHECK(rerail_queue_open(transport, 0, &first) == RERAIL_EINVAL);
    CHECK(rerail_queue_open(transport, 8, &first) == 0 && rerail_queue_open(transport, 8, &second) == 0 && first != second);
    CHECK(rerail_queue_cookie(transport, 99, 5, &cookie) == RERAIL_EINVAL);
    CHECK(rerail_queue_cookie(transport, first, UINT64_C(1) << 56, &cookie) == RERAIL_EINVAL);
    CHECK(rerail_queue_cookie(transport, second, 5, &cookie) == 0);
    CHECK(rerail_recv(transport, peer, 1000, 0, to, sizeof to, cookie, NULL) == 0);
    CHECK(rerail_queue_cookie(transport, first, 6, &cookie) == 0);
    CHECK(rerail_send(transport, peer, 1000, 0, from, sizeof from, cookie, NULL) == 0);
    int sent = 0, received = 0;
    while (!sent || !received) {
        rerail_progress(transport);
        while (rerail_poll(transport, &event, 1)) {
            CHECK(event.kind == RERAIL_PEER_UP);
            beside++;
        }
        while (rerail_queue_poll(transport, first, &event, 1))
            if (event.kind == RERAIL_COMPLETED) {
                CHECK(event.status == 0 && RERAIL_COOKIE_VALUE(event.cookie) == 6);
                sent++;
            }
        while (rerail_queue_poll(transport, second, &event, 1))
            if (event.kind == RERAIL_COMPLETED) {
                CHECK(event.status == 0 && RERAIL_COOKIE_VALUE(event.cookie) == 5 && event.bytes == 3 && !memcmp(to, "abc", 3));
                received++;
            }
    }
    CHECK(sent == 1 && received == 1 && beside <= 1 && rerail_queue_poll(transport, 99, &event, 1) == 0);
}

/* Values in the other process's memory, each change after those before it. */
static void atomics(uint32_t peer)
{
    static char large[LARGE];
    const double one = 1.5, two = 2.25;
    uint64_t first, second;
    rerail_event event;
    memcpy(&first, &one, 8);
    memcpy(&second, &two, 8);
    struct { int kind, type; uint64_t operand, compare, before; } steps[] = {
        {RERAIL_SUM, RERAIL_UINT32, 5, 0, 0},
        {RERAIL_PROD, RERAIL_UINT32, 3, 0, 5},
        {RERAIL_CSWAP, RERAIL_UINT32, 7, 16, 15},
        {RERAIL_CSWAP, RERAIL_UINT32, 0xff, 15, 15},
        {RERAIL_MSWAP, RERAIL_UINT32, 0, 0x0f, 0xff},
        {RERAIL_BXOR, RERAIL_UINT8, 0xf0, 0, 0xf0},
        {RERAIL_SWAP, RERAIL_DOUBLE, first, 0, 0},
        {RERAIL_SUM, RERAIL_DOUBLE, second, 0, first},
        {RERAIL_FETCH, RERAIL_DOUBLE, 0, 0, 0}};
    const double sum = one + two;
    memcpy(&steps[8].before, &sum, 8);
    for (unsigned at = 0; at < sizeof steps / sizeof *steps; at++) {
        CHECK(rerail_atomic(transport, peer, 99, 400, steps[at].kind, steps[at].type, steps[at].operand, steps[at].compare, 20, NULL) == 0);
        event = completed(20);
        CHECK(event.status == 0 && event.request == RERAIL_ATOMIC && event.immediate == steps[at].before);
    }
    CHECK(rerail_atomic(transport, peer, 99, 400, 0, RERAIL_UINT8, 0, 0, 20, NULL) == RERAIL_EINVAL);
    CHECK(rerail_atomic(transport, peer, 99, 400, RERAIL_SUM, 11, 0, 0, 20, NULL) == RERAIL_EINVAL);
    CHECK(rerail_atomic(transport, peer, 99, 400, RERAIL_BOR, RERAIL_DOUBLE, 0, 0, 20, NULL) == RERAIL_EINVAL);
    CHECK(rerail_atomic(transport, peer, 99, 401, RERAIL_SUM, RERAIL_UINT16, 0, 0, 20, NULL) == 0);
    CHECK(completed(20).status == RERAIL_EREFUSED);
    /* The get finds what was written before the fence, though large. */
    memset(large, 'z', LARGE - 1000);
    CHECK(rerail_put(transport, peer, 99, 1000, large, LARGE - 1000, 21, NULL) == 0);
    CHECK(rerail_fence(transport, 2) == RERAIL_EINVAL && rerail_fence(transport, peer) == 0 && rerail_fence(transport, peer) == 0);
    char last = 0;
    CHECK(rerail_get(transport, peer, 99, LARGE - 1, &last, 1, 22, NULL) == 0);
    for (int ended = 0; ended < 2;) {
        rerail_progress(transport);
        while (rerail_poll(transport, &event, 1)) {
            CHECK(event.kind == RERAIL_COMPLETED && event.status == 0);
            ended++;
        }
    }
    CHECK(last == 'z');
}

int main(void)
{
    int down[2], up[2];
    char why[200] = "";
    unsigned char names[2][RERAIL_NAME_BYTES];
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (rerail_open(&transport, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    uint32_t rank, peer, size;
    CHECK(rerail_rank(transport, &rank) == RERAIL_ESTATE && strlen(rerail_error(transport)) > 0);
    CHECK(rerail_name(transport, names[0]) == 0);
    int out = child ? down[1] : up[1], in = child ? up[0] : down[0];
    CHECK(write(out, names[0], sizeof names[0]) == sizeof names[0]);
    CHECK(read(in, names[1], sizeof names[1]) == sizeof names[1]);
    CHECK(rerail_join(transport, names[0], 2) == 0);
    CHECK(rerail_join(transport, names[0], 2) == RERAIL_ESTATE);
    CHECK(rerail_size(transport, &size) == 0 && size == 2);
    CHECK(rerail_rank(transport, &rank) == 0 && rerail_rank_of(transport, names[1], &peer) == 0 && rank + peer == 1);

    char *buffer = calloc(1, LARGE);
    memory = calloc(1, LARGE);
    uint64_t window, counted, request, count;
    CHECK(rerail_expose(transport, memory, LARGE, 99, &window) == 0);
    CHECK(rerail_expose_counted(transport, memory, 100, 100, 3, &counted) == 0);
    CHECK(rerail_expose_counted(transport, memory, 100, 101, 65535, NULL) == RERAIL_EINVAL);
    CHECK(rerail_counter(transport, 3, &count) == 0 && count == 0 && rerail_counter(transport, 65535, NULL) == RERAIL_EINVAL);
    queues(peer);
    if (child) {
        CHECK(rerail_inject_max(transport) >= 1024);
        CHECK(rerail_inject(transport, peer, TAG, 123, "hello", 5) == 0);
        memset(buffer, 'x', LARGE);
        CHECK(rerail_send_more(transport, peer, TAG + 2, 0, buffer, 3, 9, &request) == 0);
        CHECK(completed(9).status == 0);
        CHECK(rerail_send(transport, peer, TAG + 1, 0, buffer, LARGE, 2, NULL) == 0);
        CHECK(completed(2).status == 0);
        /* The other one has read them both when it answers. */
        CHECK(rerail_recv(transport, RERAIL_ANY, 0, UINT64_MAX, buffer, 10, 3, NULL) == 0);
        rerail_event event = completed(3);
        CHECK(event.status == RERAIL_ETRUNCATED && event.bytes == 20 && event.peer == peer && event.tag == 55);
        CHECK(event.flags == (RERAIL_LAST | RERAIL_IMMEDIATE | RERAIL_TAGGED) && event.immediate == 66);
        CHECK(event.request == RERAIL_RECV);
        CHECK(rerail_put(transport, peer, 99, 100, "written", 7, 4, NULL) == 0);
        event = completed(4);
        CHECK(event.status == 0 && event.request == RERAIL_PUT);
        CHECK(rerail_put_immediate(transport, peer, 99, 200, 77, "event", 5, 10, NULL) == 0 && completed(10).status == 0);
        CHECK(rerail_put_immediate(transport, peer, 100, 0, 77, "count", 5, 11, NULL) == 0 && completed(11).status == 0);
        CHECK(rerail_get(transport, peer, 99, 98, buffer, 11, 5, NULL) == 0);
        event = completed(5);
        CHECK(event.status == 0 && event.bytes == 11 && !memcmp(buffer, "\0\0written\0\0", 11));
        CHECK(event.request == RERAIL_GET);
        memcpy(buffer, "injected", 8);
        CHECK(rerail_inject_put(transport, peer, 99, 300, buffer, 8) == 0 && rerail_inject_put(transport, peer, 99, 0, buffer, LARGE) == RERAIL_EINVAL);
        memset(buffer, 0, 8);
        CHECK(rerail_flush(transport, peer, 12, NULL) == 0);
        event = completed(12);
        CHECK(event.status == 0 && event.request == RERAIL_FLUSH);
        atomics(peer);
        CHECK(rerail_put(transport, peer, 98, 0, "x", 1, 6, NULL) == 0);
        CHECK(completed(6).status == RERAIL_EREFUSED);
        CHECK(rerail_send(transport, peer, 60, 0, NULL, 0, 7, NULL) == 0);
        event = completed(7);
        CHECK(event.status == 0 && event.request == RERAIL_SEND);
    } else {
        CHECK(rerail_recv(transport, peer, TAG, 0, buffer, LARGE, 1, &request) == 0);
        rerail_event event = completed(1);
        CHECK(event.status == 0 && event.bytes == 5 && !memcmp(buffer, "hello", 5));
        CHECK(event.flags == (RERAIL_LAST | RERAIL_IMMEDIATE | RERAIL_TAGGED) && event.immediate == 123);
        CHECK(event.tag == TAG && event.peer == peer);
        CHECK(rerail_cancel(transport, request) == RERAIL_EINVAL);
        CHECK(rerail_recv(transport, peer, 77, 0, buffer, 1, 8, &request) == 0);
        CHECK(rerail_cancel(transport, request) == 0 && completed(8).status == RERAIL_ECANCELLED);
        CHECK(rerail_recv(transport, peer, TAG + 2, 0, buffer, 3, 9, NULL) == 0 && completed(9).bytes == 3);
        CHECK(rerail_recv(transport, peer, TAG + 1, 0, buffer, LARGE, 2, NULL) == 0);
        CHECK(completed(2).bytes == LARGE && buffer[0] == 'x' && buffer[LARGE - 1] == 'x');
        CHECK(rerail_send(transport, peer, 55, 66, buffer, 20, 3, NULL) == 0);
        CHECK(completed(3).status == 0);
        CHECK(rerail_recv(transport, peer, 60, 0, NULL, 0, 4, NULL) == 0);
        CHECK(completed(4).status == 0 && !memcmp(memory + 100, "written", 7) && !memcmp(memory, "count", 5));
        CHECK(!memcmp(memory + 300, "injected", 8));
        CHECK(written == 1 && rerail_counter(transport, 3, &count) == 0 && count == 1);
        CHECK(rerail_deregister(transport, window) == 0);
    }
    CHECK(rerail_wait(transport, 0) == 0);
    CHECK(rerail_close(transport, 2000) == 0);
    if (child) {
        int status = -1;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
    }
    return 0;
}
