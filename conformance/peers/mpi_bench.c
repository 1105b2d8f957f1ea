/* The loops of `rerail perf --batch` in MPI, line by line: conformance/src/perf/batch.rs. Every receive is posted inside the
 * time that is measured, and the clock is read once for a batch.
 *
 *   mpi_bench latency BYTES BATCH BATCHES WARMUP [WINDOW] [alloc] [fresh]
 *   mpi_bench rate    BYTES BATCH BATCHES WARMUP WINDOW [alloc] [fresh]
 *   mpi_bench put|get BYTES BATCH BATCHES WARMUP WINDOW [alloc]
 *   mpi_bench meet|all BYTES BATCH BATCHES WARMUP
 *
 * All messages have the same memory, by alloc that of MPI_Alloc_mem. By fresh it is rewritten before each message, and so these
 * go one at a time. put and get: windows of so many accesses, each ended by a flush, while the owner of the memory waits in
 * MPI_Recv. meet: in each round pairs are drawn anew, and the two exchange a message; all: in each round every rank sends one
 * to every other. Of these two, all ranks measure, and rank 0 prints the nanoseconds of a round.
 *
 * Rank i of the first half measures with rank i of the second half, all pairs at once. Rank 0 prints the nanoseconds of a
 * message (half a round trip, the mean of the pairs; or one message of a window, of all pairs together) of each batch, one a
 * line. MPI_BENCH_PIN=A,B,... pins rank 0 to processor A, rank 1 to processor B, and so on. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DATA = 1, ANSWER = 2, WINDOW_MAX = 1024, RANKS_MAX = 64 };

static char *outgoing, *incoming;
static long bytes;
static int is_fresh;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void renew(void)
{
    static int value;
    if (is_fresh)
        memset(outgoing, ++value, bytes);
}

static void latency(int first, int peer, long batch)
{
    for (long number = 0; number < batch; number++) {
        MPI_Request received;
        MPI_Irecv(incoming, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &received);
        if (!first)
            MPI_Wait(&received, MPI_STATUS_IGNORE);
        renew();
        MPI_Send(outgoing, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD);
        if (first)
            MPI_Wait(&received, MPI_STATUS_IGNORE);
    }
}

static void windows(int first, int peer, long batch, long window)
{
    static MPI_Request requests[WINDOW_MAX];
    static MPI_Status statuses[WINDOW_MAX];
    for (long round = 0; round < batch; round++) {
        for (long number = 0; number < window; number++) {
            if (first && is_fresh) {
                renew();
                MPI_Send(outgoing, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD);
                requests[number] = MPI_REQUEST_NULL;
            } else if (first)
                MPI_Isend(outgoing, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &requests[number]);
            else
                MPI_Irecv(incoming, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &requests[number]);
        }
        MPI_Waitall(window, requests, statuses);
        if (first)
            MPI_Recv(incoming, 0, MPI_BYTE, peer, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(outgoing, 0, MPI_BYTE, peer, ANSWER, MPI_COMM_WORLD);
    }
}

/* The peer of a rank in a round: ranks in an order that the round draws, in pairs. As in conformance/src/perf/many.rs. */
static int met(int rank, int size, unsigned long long round)
{
    int order[RANKS_MAX];
    unsigned long long state = round * 2 + 1;
    for (int at = 0; at < size; at++)
        order[at] = at;
    for (int at = size - 1; at > 0; at--) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        int other = (state >> 33) % (at + 1), kept = order[at];
        order[at] = order[other];
        order[other] = kept;
    }
    for (int at = 0; at < size; at++)
        if (order[at] == rank)
            return order[at ^ 1];
    return rank;
}

static void meet(int rank, int size, long batch)
{
    static unsigned long long rounds;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    for (long round = 0; round < batch; round++) {
        int peer = met(rank, size, rounds++);
        MPI_Irecv(incoming, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(outgoing, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, statuses);
    }
}

static void all_to_all(int rank, int size, long batch)
{
    MPI_Request requests[2 * RANKS_MAX];
    MPI_Status statuses[2 * RANKS_MAX];
    for (long round = 0; round < batch; round++) {
        int count = 0;
        for (int by = 1; by < size; by++)
            MPI_Irecv(incoming + by * bytes, bytes, MPI_BYTE, (rank + size - by) % size, DATA, MPI_COMM_WORLD,
                      &requests[count++]);
        for (int by = 1; by < size; by++)
            MPI_Isend(outgoing, bytes, MPI_BYTE, (rank + by) % size, DATA, MPI_COMM_WORLD, &requests[count++]);
        MPI_Waitall(count, requests, statuses);
    }
}

static void accesses(int is_put, int peer, long batch, long window, MPI_Win win)
{
    for (long round = 0; round < batch; round++) {
        for (long number = 0; number < window; number++) {
            if (is_put)
                MPI_Put(outgoing, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, win);
            else
                MPI_Get(incoming, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, win);
        }
        MPI_Win_flush(peer, win);
    }
}

static void pin(int rank)
{
    const char *pin = getenv("MPI_BENCH_PIN");
    for (int before = 0; pin && before < rank; before++) {
        pin = strchr(pin, ',');
        pin = pin ? pin + 1 : NULL;
    }
    if (!pin)
        return;
    cpu_set_t alone;
    CPU_ZERO(&alone);
    CPU_SET(atoi(pin), &alone);
    if (sched_setaffinity(0, sizeof alone, &alone) != 0) {
        perror("mpi_bench: sched_setaffinity");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int is_rate = argc > 1 && strcmp(argv[1], "rate") == 0, is_put = argc > 1 && strcmp(argv[1], "put") == 0;
    int is_get = argc > 1 && strcmp(argv[1], "get") == 0, is_meet = argc > 1 && strcmp(argv[1], "meet") == 0;
    int is_all = argc > 1 && strcmp(argv[1], "all") == 0, is_access = is_put || is_get;
    long window = argc > 6 ? atol(argv[6]) : 1;
    if (size < 2 || size % 2 || size > RANKS_MAX || argc < 6 || window < 1 || window > WINDOW_MAX || atol(argv[4]) < 1) {
        if (rank == 0)
            fprintf(stderr, "usage: mpi_bench latency|rate|put|get|meet|all BYTES BATCH BATCHES WARMUP [WINDOW] [alloc] [fresh], with 2 ranks or more\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin(rank);
    bytes = atol(argv[2]);
    long batch = atol(argv[3]), batches = atol(argv[4]), warmup = atol(argv[5]);
    int is_allocated = 0;
    for (int number = 7; number < argc; number++) {
        is_allocated |= strcmp(argv[number], "alloc") == 0;
        is_fresh |= strcmp(argv[number], "fresh") == 0;
    }
    long room = (bytes < 64 ? 64 : bytes) * (is_all ? size : 1);
    if (is_allocated) {
        MPI_Alloc_mem(room, MPI_INFO_NULL, &outgoing);
        MPI_Alloc_mem(room, MPI_INFO_NULL, &incoming);
    } else if (posix_memalign((void **)&outgoing, 4096, room) || posix_memalign((void **)&incoming, 4096, room)) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    /* Written to before it is measured: pages that were never written are all the same one. */
    memset(outgoing, 1 + rank, room);
    memset(incoming, 0, room);
    MPI_Win win = MPI_WIN_NULL;
    if (is_access) {
        /* What the peer accesses. */
        char *memory = is_put ? incoming : outgoing;
        if (is_allocated) {
            MPI_Win_allocate(room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
            memset(memory, 1 + rank, room);
        } else
            MPI_Win_create(memory, room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_lock_all(0, win);
    }
    double messages = is_meet || is_all ? batch : is_access || is_rate ? (double)batch * window : 2.0 * batch;
    int pairs = size / 2, first = rank < pairs, peer = first ? rank + pairs : rank - pairs;
    double *times = calloc(batches, sizeof *times), *all = calloc(batches * size, sizeof *all);
    if (!times || !all)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Barrier(MPI_COMM_WORLD);
    for (long number = 0; number < warmup + batches; number++) {
        double start = now_ns();
        if (is_rate)
            windows(first, peer, batch, window);
        else if (is_meet)
            meet(rank, size, batch);
        else if (is_all)
            all_to_all(rank, size, batch);
        else if (is_access && first)
            accesses(is_put, peer, batch, window, win);
        else if (is_access)
            break;
        else
            latency(first, peer, batch);
        if (number >= warmup)
            times[number - warmup] = (now_ns() - start) / messages;
    }
    if (is_access) {
        /* The owner of the memory is in a call until then. */
        if (first)
            MPI_Send(outgoing, 0, MPI_BYTE, peer, ANSWER, MPI_COMM_WORLD);
        else
            MPI_Recv(incoming, 0, MPI_BYTE, peer, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Win_unlock_all(win);
        MPI_Win_free(&win);
        is_rate = 1;
    }
    MPI_Gather(times, batches, MPI_DOUBLE, all, batches, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (long number = 0; rank == 0 && number < batches; number++) {
        double sum = 0;
        for (int pair = 0; pair < pairs; pair++)
            sum += is_rate ? 1 / all[pair * batches + number] : all[pair * batches + number] / pairs;
        printf("%.3f\n", is_rate ? 1 / sum : sum);
    }
    MPI_Finalize();
    return 0;
}
