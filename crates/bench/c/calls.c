/* What calls cost, in microseconds: medians, as {"calls": {"name": us, ...}}.
 *
 *   calls listen|connect ADDRESS PORT SECONDS table|memory 0
 *
 * table:  the calls that programs make once or for each message.
 * memory: registering regions of several sizes, and locking the same pages. */

#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "peer.h"

enum { SAMPLES = 101, POLLS = 10000, OCTETS = 64, LIST = 32, REGION_MAX = 64 << 20 };

static double samples[POLLS];
static const char *separator = "";

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void say(int count, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    qsort(samples, count, sizeof *samples, compare);
    printf("%s\"", separator);
    vprintf(format, arguments);
    printf("\": %.4f", samples[count / 2] * 1e6);
    separator = ", ";
    va_end(arguments);
}

/* Times `call` so many times, with `undo` after each. */
#define TIMED(count, call, undo)                                                                   \
    for (int sample = 0; sample < (count); sample++) {                                             \
        double began = now_s();                                                                    \
        call;                                                                                      \
        samples[sample] = now_s() - began;                                                         \
        undo;                                                                                      \
    }

static void objects(struct peer *p) {
    struct ibv_context *device = NULL;
    TIMED(SAMPLES, device = ibv_open_device(p->id->verbs->device), ibv_close_device(device));
    say(SAMPLES, "open a device");
    struct ibv_pd *pd = NULL;
    TIMED(SAMPLES, pd = ibv_alloc_pd(p->id->verbs), ibv_dealloc_pd(pd));
    say(SAMPLES, "allocate a protection domain");
    struct ibv_cq *cq = NULL;
    TIMED(SAMPLES, cq = ibv_create_cq(p->id->verbs, DEPTH, NULL, NULL, 0), ibv_destroy_cq(cq));
    say(SAMPLES, "create a completion queue");
    cq = ibv_create_cq(p->id->verbs, DEPTH, NULL, NULL, 0);
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = NULL;
    TIMED(SAMPLES, qp = ibv_create_qp(p->id->pd, &attributes), ibv_destroy_qp(qp));
    say(SAMPLES, "create a queue pair");
    ibv_destroy_cq(cq);
}

static void requests(struct peer *p) {
    struct ibv_wc wc;
    struct ibv_cq *cq = p->id->send_cq;
    TIMED(SAMPLES, receive(p), (void)0);
    say(SAMPLES, "post a receive");
    TIMED(SAMPLES, post_write(p, OCTETS, IBV_SEND_SIGNALED), wait_for(cq));
    say(SAMPLES, "post a Write");
    TIMED(POLLS, must(ibv_poll_cq(cq, 1, &wc) != 0, "ibv_poll_cq"), (void)0);
    say(POLLS, "poll, nothing there");
    for (int i = 0; i < LIST; i++)
        post_write(p, OCTETS, IBV_SEND_SIGNALED);
    /* Until all are complete; nobody polls meanwhile. */
    usleep(50000);
    TIMED(LIST, must(ibv_poll_cq(cq, 1, &wc) != 1, "ibv_poll_cq"), (void)0);
    say(LIST, "poll, something there");
}

static void table(struct peer *p) {
    objects(p);
    requests(p);
    samples[0] = p->connecting_s;
    say(1, "connect");
}

static void region(struct peer *p, char *memory, size_t bytes) {
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = NULL;
    TIMED(SAMPLES, mr = ibv_reg_mr(p->id->pd, memory, bytes, access), ibv_dereg_mr(mr));
    say(SAMPLES, "register %zu", bytes);
    if (mlock(memory, bytes) != 0)
        return;
    munlock(memory, bytes);
    TIMED(SAMPLES / 5, (void)!mlock(memory, bytes), munlock(memory, bytes));
    say(SAMPLES / 5, "lock %zu", bytes);
}

static void memory(struct peer *p) {
    static const size_t kib[] = {1, 4, 16, 64, 100, 225, 256, 1024, 4096, 16384, 65536};
    char *memory = malloc(REGION_MAX);
    must(memory == NULL, "malloc");
    memset(memory, 1, REGION_MAX);
    for (size_t i = 0; i < sizeof kib / sizeof *kib; i++)
        region(p, memory, kib[i] << 10);
    free(memory);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: calls listen|connect ADDRESS PORT SECONDS table|memory 0\n");
        return 2;
    }
    struct peer p = meet(argv, OCTETS, receive);
    if (!p.connects) {
        hear(&p);
    } else {
        printf("{\"calls\": {");
        if (strcmp(p.pattern, "table") == 0)
            table(&p);
        else
            memory(&p);
        printf("}}\n");
        tell(&p, 0);
    }
    part(&p);
    return 0;
}
