/* Checks an MPI library: every section sends known bytes and looks at every byte and status that comes back.
 *
 *   mpi_check [SECTION...]      where none is named, all that every library must do; threads: alone
 *
 * Rank 0 prints a line for each section that went well. Exit: 0, else MPI_Abort with the number of the line that failed. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 4 << 20 };

static int rank, size, left, right;
static unsigned char *out, *in;

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #condition);              \
            MPI_Abort(MPI_COMM_WORLD, __LINE__ % 200 + 1);                                      \
        }                                                                                       \
    } while (0)

/* What stands at a place of a message: no two messages of a test look alike. */
static unsigned char byte_of(unsigned seed, long at)
{
    return (unsigned char)(seed * 31 + at * 7 + (at >> 8) * 13 + (at >> 16));
}

static void fill(unsigned char *buffer, long bytes, unsigned seed)
{
    for (long at = 0; at < bytes; at++)
        buffer[at] = byte_of(seed, at);
}

static int holds(const unsigned char *buffer, long bytes, unsigned seed)
{
    for (long at = 0; at < bytes; at++)
        if (buffer[at] != byte_of(seed, at))
            return 0;
    return 1;
}

static int is_status(MPI_Status *status, int source, int tag, int bytes)
{
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    return status->MPI_SOURCE == source && status->MPI_TAG == tag && count == bytes;
}

static const long SIZES[] = { 0, 1, 7, 8, 63, 64, 100, 191, 192, 193, 1000, 4095, 4096, 4097, 8191, 8192, 8193, 20000,
    65535, 65536, 262144, 1000003, LARGE };
enum { SIZES_COUNT = sizeof SIZES / sizeof *SIZES };

/* Every size around the ring, both ways at once; receives posted before and after the message. */
static void sizes(void)
{
    for (int i = 0; i < SIZES_COUNT; i++) {
        long bytes = SIZES[i];
        for (int late = 0; late < 2; late++) {
            MPI_Request requests[2];
            MPI_Status statuses[2];
            unsigned seed = 2 * i + late;
            fill(out, bytes, seed + rank);
            memset(in, 0xee, bytes + 64);
            if (late) {
                MPI_Isend(out, bytes, MPI_BYTE, right, i, MPI_COMM_WORLD, &requests[1]);
                usleep(500);
                MPI_Irecv(in, bytes, MPI_BYTE, left, i, MPI_COMM_WORLD, &requests[0]);
            } else {
                MPI_Irecv(in, bytes, MPI_BYTE, left, i, MPI_COMM_WORLD, &requests[0]);
                MPI_Barrier(MPI_COMM_WORLD);
                MPI_Isend(out, bytes, MPI_BYTE, right, i, MPI_COMM_WORLD, &requests[1]);
            }
            MPI_Waitall(2, requests, statuses);
            CHECK(is_status(&statuses[0], left, i, bytes));
            CHECK(holds(in, bytes, seed + left));
            CHECK(in[bytes] == 0xee);
        }
    }
}

/* Receives by tag out of order, by any source, by any tag. */
static void matching(void)
{
    enum { MESSAGES = 50 };
    MPI_Status status;
    if (rank > 0) {
        for (int tag = 0; tag < MESSAGES; tag++) {
            int value[2] = { rank, tag };
            MPI_Send(value, 2, MPI_INT, 0, tag, MPI_COMM_WORLD);
        }
        for (int tag = 0; tag < MESSAGES; tag++) {
            int value[2] = { rank, tag };
            MPI_Send(value, 2, MPI_INT, 0, 1000 + rank, MPI_COMM_WORLD);
        }
        return;
    }
    for (int tag = MESSAGES - 1; tag >= 0; tag--)
        for (int source = 1; source < size; source++) {
            int value[2];
            int directed = tag % 3;
            MPI_Recv(value, 2, MPI_INT, directed ? source : MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
            CHECK(status.MPI_SOURCE == value[0] && value[1] == tag && status.MPI_TAG == tag);
            CHECK(!directed || value[0] == source);
        }
    int *next = calloc(size, sizeof *next);
    for (int i = 0; i < MESSAGES * (size - 1); i++) {
        int value[2];
        MPI_Recv(value, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        CHECK(is_status(&status, value[0], 1000 + value[0], 8));
        CHECK(value[1] == next[value[0]]++); /* in the order in which they were sent */
    }
    free(next);
}

/* Another communicator has matching of its own, and synchronous sends wait for the receive. */
static void synchronous(void)
{
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    if (rank == 0) {
        MPI_Request request;
        int flag = 1, value = 5;
        MPI_Issend(&value, 1, MPI_INT, 1, 3, other, &request);
        for (int i = 0; i < 100; i++) {
            MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
            CHECK(!flag);
        }
        value = 6;
        MPI_Send(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        value = 7;
        MPI_Ssend(&value, 1, MPI_INT, 1, 4, other);
    } else if (rank == 1) {
        int value = 0;
        MPI_Recv(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(value == 6);
        MPI_Recv(&value, 1, MPI_INT, 0, 3, other, MPI_STATUS_IGNORE);
        CHECK(value == 5 || value == 6); /* the sender changes it only after its test */
        MPI_Recv(&value, 1, MPI_INT, 0, 4, other, MPI_STATUS_IGNORE);
        CHECK(value == 7);
    }
    MPI_Comm_free(&other);
}

static void probing(void)
{
    MPI_Status status;
    if (rank == 1) {
        for (int i = 0; i < SIZES_COUNT; i += 3) {
            MPI_Request requests[3];
            fill(out, SIZES[i], 100 + i);
            for (int copy = 0; copy < 3; copy++)
                MPI_Isend(out, SIZES[i], MPI_BYTE, 0, 200 + i, MPI_COMM_WORLD, &requests[copy]);
            MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        }
    } else if (rank == 0) {
        int flag = 1;
        MPI_Iprobe(1, 9999, MPI_COMM_WORLD, &flag, &status);
        CHECK(!flag);
        for (int i = 0; i < SIZES_COUNT; i += 3) {
            long bytes = SIZES[i];
            MPI_Message message;
            MPI_Probe(MPI_ANY_SOURCE, 200 + i, MPI_COMM_WORLD, &status);
            CHECK(is_status(&status, 1, 200 + i, bytes));
            MPI_Recv(in, bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
            CHECK(is_status(&status, 1, 200 + i, bytes) && holds(in, bytes, 100 + i));
            memset(in, 0, bytes);
            MPI_Mprobe(1, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
            CHECK(is_status(&status, 1, 200 + i, bytes));
            /* The claimed one is out of matching: this receives the third. */
            MPI_Recv(in, bytes, MPI_BYTE, 1, 200 + i, MPI_COMM_WORLD, &status);
            CHECK(is_status(&status, 1, 200 + i, bytes) && holds(in, bytes, 100 + i));
            memset(in, 0, bytes);
            MPI_Mrecv(in, bytes, MPI_BYTE, &message, &status);
            CHECK(is_status(&status, 1, 200 + i, bytes) && holds(in, bytes, 100 + i));
        }
        do
            MPI_Improbe(MPI_ANY_SOURCE, 9999, MPI_COMM_WORLD, &flag, &(MPI_Message){ 0 }, &status);
        while (flag);
    }
}

static void cancelling(void)
{
    MPI_Request request;
    MPI_Status status;
    int flag = 0, value = -1;
    for (int i = 0; i < 20; i++) {
        MPI_Irecv(&value, 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : left, 5000, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &flag);
        CHECK(flag && value == -1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int mine = rank;
    MPI_Sendrecv(&mine, 1, MPI_INT, right, 5000, &value, 1, MPI_INT, left, 5000, MPI_COMM_WORLD, &status);
    CHECK(value == left && status.MPI_SOURCE == left);
}

/* A message that is too long is an error of its receive alone. */
static void truncation(int look_at_source)
{
    static const long lengths[] = { 10, 1000, 8000, 100000, LARGE };
    MPI_Errhandler before;
    MPI_Status status;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 10; i++) {
        long bytes = lengths[i / 2];
        MPI_Request request;
        memset(in, 0xee, bytes);
        int posted = i % 2;
        if (posted)
            MPI_Irecv(in, bytes / 2, MPI_BYTE, left, 600 + i, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        fill(out, bytes, 300 + rank);
        MPI_Request sent;
        MPI_Isend(out, bytes, MPI_BYTE, right, 600 + i, MPI_COMM_WORLD, &sent);
        if (!posted) {
            usleep(500);
            MPI_Irecv(in, bytes / 2, MPI_BYTE, left, 600 + i, MPI_COMM_WORLD, &request);
        }
        int code = MPI_Wait(&request, &status), class = 0;
        MPI_Error_class(code, &class);
        CHECK(class == MPI_ERR_TRUNCATE);
        CHECK(!look_at_source || (status.MPI_SOURCE == left && status.MPI_TAG == 600 + i));
        for (long at = bytes / 2; at < bytes; at++)
            CHECK(in[at] == 0xee);
        CHECK(MPI_Wait(&sent, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
}

/* Many small messages from each rank to each, more than any queue holds, unexpected for most. */
static void flood(void)
{
    enum { MESSAGES = 3000 };
    MPI_Request *requests = malloc(sizeof *requests * MESSAGES);
    int *values = malloc(sizeof *values * MESSAGES);
    for (int shift = 1; shift < size; shift++) {
        int to = (rank + shift) % size, from = (rank + size - shift) % size;
        for (int i = 0; i < MESSAGES; i++) {
            values[i] = rank * MESSAGES + i;
            MPI_Isend(&values[i], 1, MPI_INT, to, i % 7, MPI_COMM_WORLD, &requests[i]);
        }
        int next[7];
        for (int tag = 0; tag < 7; tag++)
            next[tag] = tag;
        for (int i = 0; i < MESSAGES; i++) {
            int value = -1, tag = 6 - i % 7;
            while (next[tag] >= MESSAGES)
                tag = (tag + 1) % 7;
            MPI_Recv(&value, 1, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(value == from * MESSAGES + next[tag]);
            next[tag] += 7;
        }
        MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
    }
    free(requests);
    free(values);
}

static void persistent(void)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    for (int large = 0; large < 2; large++) {
        int bytes = large ? 100000 : 32;
        MPI_Send_init(out, bytes, MPI_BYTE, right, 70, MPI_COMM_WORLD, &requests[0]);
        MPI_Recv_init(in, bytes, MPI_BYTE, left, 70, MPI_COMM_WORLD, &requests[1]);
        for (int i = 0; i < 20; i++) {
            fill(out, bytes, i + rank);
            MPI_Startall(2, requests);
            MPI_Waitall(2, requests, statuses);
            CHECK(is_status(&statuses[1], left, 70, bytes) && holds(in, bytes, i + left));
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
    }
}

/* Columns of a matrix: memory in many pieces. */
static void pieces(void)
{
    enum { ROWS = 300, COLUMNS = 40 };
    static int from[ROWS][COLUMNS], to[ROWS][COLUMNS];
    MPI_Datatype column;
    MPI_Type_vector(ROWS, 3, COLUMNS, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            from[i][j] = rank * 100000 + i * COLUMNS + j;
            to[i][j] = -1;
        }
    MPI_Sendrecv(&from[0][5], 1, column, right, 80, &to[0][9], 1, column, left, 80, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            CHECK(to[i][j] == (j >= 9 && j < 12 ? left * 100000 + i * COLUMNS + j - 4 : -1));
    MPI_Type_free(&column);
}

static void collectives(void)
{
    static const int counts[] = { 1, 3, 100, 5000, 60000 };
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        int count = counts[i];
        long *mine = malloc(sizeof(long) * count * size), *all = malloc(sizeof(long) * count * size);
        for (int root = 0; root < size; root++) {
            for (int at = 0; at < count; at++)
                mine[at] = rank == root ? root * 7 + at : -1;
            MPI_Bcast(mine, count, MPI_LONG, root, MPI_COMM_WORLD);
            for (int at = 0; at < count; at++)
                CHECK(mine[at] == root * 7 + at);
        }
        for (int at = 0; at < count; at++)
            mine[at] = rank + at;
        MPI_Allreduce(mine, all, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        for (int at = 0; at < count; at++)
            CHECK(all[at] == (long)size * at + (long)size * (size - 1) / 2);
        MPI_Allgather(mine, count, MPI_LONG, all, count, MPI_LONG, MPI_COMM_WORLD);
        for (int from = 0; from < size; from++)
            for (int at = 0; at < count; at++)
                CHECK(all[from * count + at] == from + at);
        for (int at = 0; at < count * size; at++)
            mine[at] = rank * 1000000L + at;
        MPI_Alltoall(mine, count, MPI_LONG, all, count, MPI_LONG, MPI_COMM_WORLD);
        for (int from = 0; from < size; from++)
            for (int at = 0; at < count; at++)
                CHECK(all[from * count + at] == from * 1000000L + rank * count + at);
        MPI_Request request;
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        free(mine);
        free(all);
    }
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    int sum = 0, expected = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
    for (int other = rank % 2; other < size; other += 2)
        expected += other;
    CHECK(sum == expected);
    MPI_Comm_free(&half);
}

/* Messages to itself. */
static void itself(void)
{
    for (int i = 0; i < SIZES_COUNT; i++) {
        MPI_Request request;
        MPI_Status status;
        fill(out, SIZES[i], 900 + i);
        MPI_Irecv(in, SIZES[i], MPI_BYTE, rank, 90, MPI_COMM_WORLD, &request);
        MPI_Send(out, SIZES[i], MPI_BYTE, rank, 90, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        CHECK(is_status(&status, rank, 90, SIZES[i]) && holds(in, SIZES[i], 900 + i));
    }
}

/* A rank that computes meanwhile gets what was sent before, and others get what it sent before. */
static void computing(void)
{
    int value = rank, got = -1;
    if (rank == 0) {
        MPI_Send(&value, 1, MPI_INT, 1, 95, MPI_COMM_WORLD);
        usleep(300000); /* no call of MPI */
        MPI_Recv(&got, 1, MPI_INT, 1, 95, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(got == 1);
    } else if (rank == 1) {
        double begin = MPI_Wtime();
        MPI_Recv(&got, 1, MPI_INT, 0, 95, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(got == 0);
        if (getenv("MPI_CHECK_VERBOSE"))
            printf("a message of a rank that computes came after %.3f s\n", MPI_Wtime() - begin);
        MPI_Send(&value, 1, MPI_INT, 0, 95, MPI_COMM_WORLD);
    }
}

static void one_sided(void)
{
    enum { LONGS = 20000 };
    long *memory, mine = rank + 1, old = -1;
    MPI_Win window;
    MPI_Win_allocate(LONGS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    long *buffer = malloc(LONGS * sizeof(long));
    for (int i = 0; i < LONGS; i++) {
        memory[i] = -1;
        buffer[i] = rank * 100000L + i;
    }
    MPI_Win_fence(0, window);
    MPI_Put(buffer, LONGS / 2, MPI_LONG, right, 0, LONGS / 2, MPI_LONG, window);
    MPI_Put(buffer, 1, MPI_LONG, right, LONGS - 1, 1, MPI_LONG, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < LONGS / 2; i++)
        CHECK(memory[i] == left * 100000L + i);
    CHECK(memory[LONGS / 2] == -1 && memory[LONGS - 1] == left * 100000L);
    MPI_Get(buffer, LONGS / 2, MPI_LONG, left, 0, LONGS / 2, MPI_LONG, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < LONGS / 2; i++)
        CHECK(buffer[i] == (left + size - 1) % size * 100000L + i);
    memory[0] = memory[1] = memory[2] = 0;
    MPI_Win_fence(0, window);
    for (int i = 0; i < 50; i++) {
        MPI_Accumulate(&mine, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, window);
    }
    MPI_Win_fence(0, window);
    CHECK(rank != 0 || memory[0] == 50L * size * (size + 1) / 2);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < 20; i++) {
        long one = 1;
        MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 1, MPI_SUM, window);
        MPI_Win_flush(0, window);
        CHECK(old >= i && old < 20L * size);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        CHECK(memory[1] == 20L * size);
        MPI_Win_unlock(0, window);
    }
    free(buffer);
    MPI_Win_free(&window);
}

/* Each rank tries to swap its number in first; one is. */
static void swapping(void)
{
    long *memory, mine = rank + 1, zero = 0, old = -1;
    MPI_Win window;
    MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    *memory = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    MPI_Compare_and_swap(&mine, &zero, &old, MPI_LONG, 0, 0, window);
    MPI_Win_flush(0, window);
    MPI_Win_unlock_all(window);
    int won = old == 0, winners = 0;
    long winner = won ? mine : 0, first = 0;
    MPI_Allreduce(&won, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&winner, &first, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    CHECK(winners == 1 && (won || old == first));
    MPI_Win_free(&window);
}

/* Threads of a rank talk at the same time, each on a communicator of its own. */
static void *talk(void *communicator)
{
    MPI_Comm own = *(MPI_Comm *)communicator;
    for (int i = 0; i < 100; i++) {
        static const int lengths[] = { 4, 3000, 40000 };
        unsigned char mine[40000], theirs[40000];
        int bytes = lengths[i % 3];
        MPI_Status status;
        fill(mine, bytes, i + rank);
        MPI_Sendrecv(mine, bytes, MPI_BYTE, right, i, theirs, bytes, MPI_BYTE, left, i, own, &status);
        CHECK(is_status(&status, left, i, bytes) && holds(theirs, bytes, i + left));
    }
    return NULL;
}

static void threads(void)
{
    enum { THREADS = 3 };
    int provided = 0;
    pthread_t started[THREADS];
    MPI_Comm own[THREADS];
    MPI_Query_thread(&provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &own[i]);
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&started[i], NULL, talk, &own[i]));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(started[i], NULL);
        MPI_Comm_free(&own[i]);
    }
}

/* Large messages around the ring for some seconds, in which something may be done to the network. */
static void ring(void)
{
    enum { BYTES = 1 << 20 };
    double begin = MPI_Wtime();
    int goes_on = 1, round = 0;
    for (; goes_on; round++) {
        MPI_Status status;
        fill(out, BYTES, round + rank);
        memset(in, 0, BYTES);
        MPI_Sendrecv(out, BYTES, MPI_BYTE, right, 96, in, BYTES, MPI_BYTE, left, 96, MPI_COMM_WORLD, &status);
        CHECK(is_status(&status, left, 96, BYTES) && holds(in, BYTES, round + left));
        int mine = MPI_Wtime() - begin < 4;
        MPI_Allreduce(&mine, &goes_on, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    }
    CHECK(round > 1);
}

static void truncation_plain(void) { truncation(0); }
static void truncation_source(void) { truncation(1); }

static const struct {
    const char *name;
    void (*run)(void);
    int only_named; /* only where it is named */
} SECTIONS[] = {
    { "sizes", sizes, 0 },
    { "matching", matching, 0 },
    { "synchronous", synchronous, 0 },
    { "probing", probing, 0 },
    { "cancelling", cancelling, 0 },
    { "truncation", truncation_plain, 0 },
    { "truncation-source", truncation_source, 1 },
    { "flood", flood, 0 },
    { "persistent", persistent, 0 },
    { "pieces", pieces, 0 },
    { "collectives", collectives, 0 },
    { "itself", itself, 0 },
    { "computing", computing, 0 },
    { "one-sided", one_sided, 1 },
    { "swapping", swapping, 1 },
    { "threads", threads, 1 },
    { "ring", ring, 1 },
};

int main(int argc, char **argv)
{
    int level = argc > 1 && !strcmp(argv[1], "threads") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, level, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size > 1);
    left = (rank + size - 1) % size;
    right = (rank + 1) % size;
    out = malloc(LARGE + 64);
    in = malloc(LARGE + 64);
    int ran = 0;
    for (unsigned i = 0; i < sizeof SECTIONS / sizeof *SECTIONS; i++) {
        int wanted = argc < 2 && !SECTIONS[i].only_named;
        for (int at = 1; at < argc; at++)
            wanted |= !strcmp(argv[at], SECTIONS[i].name);
        if (!wanted)
            continue;
        double begin = MPI_Wtime();
        SECTIONS[i].run();
        MPI_Barrier(MPI_COMM_WORLD);
        ran++;
        if (rank == 0) {
            printf("ok %s (%.2f s)\n", SECTIONS[i].name, MPI_Wtime() - begin);
            fflush(stdout);
        }
    }
    CHECK(ran > 0);
    MPI_Finalize();
    return 0;
}
