/* The loops of `rerail perf --batch` in MPI, line by line: conformance/src/perf/batch.rs. Every receive is posted inside the
 * time that is measured, and the clock is read once for a batch.
 *
 *   mpi_bench latency BYTES BATCH BATCHES WARMUP [WINDOW] [alloc] [fresh]
 *   mpi_bench rate    BYTES BATCH BATCHES WARMUP WINDOW [alloc] [fresh]
 *
 * All messages have the same memory, by alloc that of MPI_Alloc_mem. By fresh it is rewritten before each message, and so these
 * go one at a time.
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

enum { DATA = 1, ANSWER = 2, WINDOW_MAX = 1024 };

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
    int is_rate = argc > 1 && strcmp(argv[1], "rate") == 0;
    long window = argc > 6 ? atol(argv[6]) : 1;
    if (size < 2 || size % 2 || argc < 6 || window < 1 || window > WINDOW_MAX || atol(argv[4]) < 1) {
        if (rank == 0)
            fprintf(stderr, "usage: mpi_bench latency|rate BYTES BATCH BATCHES WARMUP [WINDOW] [alloc] [fresh], with 2 ranks or more\n");
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
    long room = bytes < 64 ? 64 : bytes;
    if (is_allocated) {
        MPI_Alloc_mem(room, MPI_INFO_NULL, &outgoing);
        MPI_Alloc_mem(room, MPI_INFO_NULL, &incoming);
    } else if (posix_memalign((void **)&outgoing, 4096, room) || posix_memalign((void **)&incoming, 4096, room)) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    /* Written to before it is measured: pages that were never written are all the same one. */
    memset(outgoing, 1 + rank, room);
    memset(incoming, 0, room);
    double messages = is_rate ? (double)batch * window : 2.0 * batch;
    int pairs = size / 2, first = rank < pairs, peer = first ? rank + pairs : rank - pairs;
    double *times = calloc(batches, sizeof *times), *all = calloc(batches * size, sizeof *all);
    if (!times || !all)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Barrier(MPI_COMM_WORLD);
    for (long number = 0; number < warmup + batches; number++) {
        double start = now_ns();
        if (is_rate)
            windows(first, peer, batch, window);
        else
            latency(first, peer, batch);
        if (number >= warmup)
            times[number - warmup] = (now_ns() - start) / messages;
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
