/* Two processes without a job: only the child gets the other one's name. It sends first, and the parent inserts it by its
 * call. Then they part, and meet again. Exit: 0, or the line that failed. */
#include "rerail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAG = 7 };

static rerail *transport;
static unsigned char caller[RERAIL_NAME_BYTES];
static int callers, closed;

static void check(int well, int line)
{
    if (!well) {
        fprintf(stderr, "process %d, line %d: %s\n", (int)getpid(), line, transport ? rerail_error(transport) : "");
        _exit(line % 250 + 1);
    }
}
#define CHECK(condition) check(condition, __LINE__)

/* One round; the completion, if there was one. */
static int driven(rerail_event *event)
{
    rerail_progress(transport);
    while (rerail_poll(transport, event, 1)) {
        if (event->kind == RERAIL_COMPLETED)
            return 1;
        if (event->kind == RERAIL_CALLER) {
            CHECK(rerail_caller(transport, caller) == 0);
            callers++;
        }
        closed += event->kind == RERAIL_PEER_CLOSED;
        CHECK(event->kind != RERAIL_PEER_LOST);
    }
    return 0;
}

static rerail_event completed(uint64_t cookie)
{
    rerail_event event;
    while (!driven(&event) || event.cookie != cookie)
        ;
    CHECK(event.status == 0);
    return event;
}

static void part(uint32_t peer)
{
    unsigned char name[RERAIL_NAME_BYTES];
    rerail_event event;
    CHECK(rerail_remove(transport, peer) == 0);
    while (rerail_name_of(transport, peer, name) == 0)
        driven(&event);
    CHECK(rerail_remove(transport, peer) == RERAIL_EINVAL);
}

int main(void)
{
    int down[2], up[2];
    char why[200] = "", word[16] = "";
    unsigned char own[RERAIL_NAME_BYTES], other[RERAIL_NAME_BYTES], name[RERAIL_NAME_BYTES];
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (rerail_open(&transport, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    uint32_t rank, peer;
    CHECK(rerail_insert(transport, own, &peer) != 0);
    CHECK(rerail_name(transport, own) == 0 && rerail_join(transport, NULL, 0) == 0);
    CHECK(rerail_rank(transport, &rank) == 0 && rank == 0);
    CHECK(rerail_name_of(transport, 0, name) == 0 && memcmp(name, own, sizeof own) == 0);
    CHECK(rerail_caller(transport, name) == RERAIL_ESTATE);
    for (int round = 0; round < 3; round++) {
        char go = 'g';
        if (child) {
            rerail_event event;
            CHECK(write(down[1], own, sizeof own) == sizeof own);
            for (callers = 0; callers == 0;)
                driven(&event);
            memcpy(other, caller, sizeof other);
            if (round == 0) {
                /* It calls again. */
                CHECK(rerail_refuse(transport, other) == 0);
                for (callers = 0; callers == 0;)
                    driven(&event);
                CHECK(memcmp(caller, other, sizeof other) == 0);
            }
            CHECK(rerail_insert(transport, other, &peer) == 0 && peer != 0);
            CHECK(rerail_recv(transport, RERAIL_ANY, TAG, 0, word, sizeof word, 1, NULL) == 0);
            event = completed(1);
            CHECK(event.peer == peer && event.bytes == 5 && memcmp(word, "hello", 5) == 0);
            CHECK(rerail_send(transport, peer, TAG, 0, "world", 5, 2, NULL) == 0);
            completed(2);
            for (closed = 0; closed == 0;)
                driven(&event);
            part(peer);
            CHECK(write(down[1], &go, 1) == 1);
        } else {
            CHECK(read(down[0], other, sizeof other) == sizeof other);
            CHECK(rerail_insert(transport, other, &peer) == 0);
            CHECK(rerail_rank_of(transport, other, &rank) == 0 && rank == peer);
            CHECK(rerail_recv(transport, peer, TAG, 0, word, sizeof word, 3, NULL) == 0);
            CHECK(rerail_inject(transport, peer, TAG, 0, "hello", 5) == 0);
            CHECK(completed(3).peer == peer && memcmp(word, "world", 5) == 0);
            part(peer);
            CHECK(read(down[0], &go, 1) == 1);
        }
    }
    CHECK(rerail_close(transport, 2000) == 0);
    if (child) {
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        return WEXITSTATUS(status);
    }
    return 0;
}
