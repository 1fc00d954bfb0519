/* What a program that computes has of RDMA.
 *
 *   load listen|connect ADDRESS PORT SECONDS fetch|overlap|crowd NUMBER
 *
 * fetch:   1 KB is read from a program that computes for NUMBER us at a time: {"us": ...}.
 * overlap: 1 KB is written to and fro, and between the two the side that began computes for NUMBER
 *          us: {"ratio": the share of the time that was computing}.
 * crowd:   forty connections bring messages of NUMBER bytes at a fixed rate into the memory of a
 *          program that computes: {"ratio": its time beside its time without them}. */

#include "peer.h"

enum { MESSAGE = 1024, CLIENTS = 40, OUTSTANDING = 16, CHUNK = 20000, AT_LEAST = 3 };
/* So that a chunk of work that is kept from the processor is one of many. */
enum { CHUNKS_MIN = 500 };

static const double RATE_BPS = 1e9;
static const char END = 2;

/* The last octet of what the other side writes here; nothing else tells of a Write. */
static volatile char *mark(struct peer *p) { return p->memory + 2 * p->bytes - 1; }

static void write_mark(struct peer *p, char value) {
    p->memory[p->bytes - 1] = value;
    post_write(p, p->bytes, IBV_SEND_SIGNALED);
}

static void fetch(struct peer *p, double load_s) {
    if (!p->connects) {
        while (*mark(p) != END)
            compute(load_s);
        return;
    }
    double began = now_s(), elapsed = 0;
    long count = 0;
    for (; count < AT_LEAST || elapsed < p->seconds; count++) {
        post(p, IBV_WR_RDMA_READ, p->bytes, 0, p->bytes, IBV_SEND_SIGNALED);
        wait_for(p->id->send_cq);
        elapsed = now_s() - began;
    }
    printf("{\"us\": %.4f}\n", elapsed * 1e6 / count);
    write_mark(p, END);
    wait_for(p->id->send_cq);
}

static void overlap(struct peer *p, double compute_s) {
    double began = now_s(), elapsed = 0;
    char value = 0;
    long count = 0;
    for (int last = 0; !last; count++) {
        value = value == 100 ? 10 : 100;
        if (p->connects) {
            last = count >= AT_LEAST && elapsed > p->seconds;
            write_mark(p, last ? END : value);
            compute(compute_s);
        }
        char expected = last ? END : value, seen;
        while ((seen = *mark(p)) != expected && seen != END)
            ;
        if (!p->connects) {
            last = seen == END;
            write_mark(p, seen);
        }
        wait_for(p->id->send_cq);
        elapsed = now_s() - began;
    }
    if (p->connects)
        printf("{\"ratio\": %.6f}\n", compute_s * count / elapsed);
}

static double sink;

static void work(long chunks) {
    for (long i = 0; i < chunks * CHUNK; i++)
        sink = sink * 0.999999 + 1;
}

/* The same work without clients and with them. */
static void computing(struct peer *peers, double seconds) {
    long chunks = 0;
    double began = now_s(), alone = 0;
    for (; (alone = now_s() - began) < seconds || chunks < CHUNKS_MIN; chunks++)
        work(1);
    tell(&peers[0], 0);
    began = now_s();
    work(chunks);
    tell(&peers[0], (now_s() - began) / alone);
}

/* Writes by all connections in turn, at the rate, until the other side tells what it came to. */
static double crowding(struct peer *peers, size_t bytes) {
    int outstanding[CLIENTS] = {0};
    struct ibv_wc wc;
    hear(&peers[0]);
    double each = bytes * 8 / RATE_BPS, due = now_s();
    for (int turn = 0; ibv_poll_cq(peers[0].id->recv_cq, 1, &wc) == 0; turn++) {
        struct peer *p = &peers[turn % CLIENTS];
        while (now_s() < due)
            ;
        due += each;
        if (outstanding[turn % CLIENTS] == OUTSTANDING) {
            wait_for(p->id->send_cq);
            outstanding[turn % CLIENTS]--;
        }
        post_write(p, bytes, IBV_SEND_SIGNALED);
        outstanding[turn % CLIENTS]++;
    }
    double ratio;
    memcpy(&ratio, peers[0].memory + 2 * peers[0].bytes, sizeof ratio);
    for (int i = 0; i < CLIENTS; i++)
        for (; outstanding[i] > 0; outstanding[i]--)
            wait_for(peers[i].id->send_cq);
    return ratio;
}

static void crowd(char **argv, size_t bytes) {
    struct rdma_cm_id *listener = NULL;
    struct peer peers[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        peers[i] = join(argv, &listener, bytes < CONTROL ? CONTROL : bytes, receive);
    if (peers[0].connects) {
        printf("{\"ratio\": %.6f}\n", crowding(peers, bytes));
        for (int i = 0; i < CLIENTS; i++)
            tell(&peers[i], 0);
    } else {
        computing(peers, peers[0].seconds);
        for (int i = 0; i < CLIENTS; i++)
            hear(&peers[i]);
    }
    for (int i = 0; i < CLIENTS; i++)
        part(&peers[i]);
    if (listener)
        rdma_destroy_ep(listener);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: load listen|connect ADDRESS PORT SECONDS PATTERN NUMBER\n");
        return 2;
    }
    double number = atof(argv[6]);
    if (strcmp(argv[5], "crowd") == 0) {
        crowd(argv, number);
        return 0;
    }
    struct peer p = meet(argv, MESSAGE, receive);
    if (strcmp(p.pattern, "fetch") == 0)
        fetch(&p, number / 1e6);
    else
        overlap(&p, number / 1e6);
    part(&p);
    return 0;
}
