/* One end of a connection between two processes, made by rdma-cm: what the programs of the figures
 * share. Nothing here knows of any device; WEFT_TRANSPORT, or the hardware, says which one it is.
 *
 *   PROGRAM listen|connect ADDRESS PORT SECONDS PATTERN [NUMBER]
 *
 * Order: meet, then post and wait, then part. The side that connects measures and prints one line
 * of JSON. */

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 256, RECEIVES = 16, CONTROL = 64, BACKLOG = 128 };

struct peer {
    int connects;
    double seconds;
    /* From nothing to a connection. */
    double connecting_s;
    const char *pattern;
    struct rdma_cm_id *id;
    /* `bytes` to send from, as many to receive into, then messages of control. */
    char *memory;
    size_t bytes;
    struct ibv_mr *mr;
    /* Where the other side's memory is. */
    struct { uint64_t address; uint32_t key; } here, far;
};

static inline void must(int failed, const char *what) {
    if (failed) {
        perror(what);
        exit(1);
    }
}

static inline double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static inline struct rdma_cm_id *endpoint(const char *address, const char *port, int flags) {
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = flags}, *info;
    struct ibv_qp_init_attr attributes = {
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct rdma_cm_id *id;
    must(rdma_getaddrinfo(address, port, &hints, &info), "rdma_getaddrinfo");
    must(rdma_create_ep(&id, info, NULL, &attributes), "rdma_create_ep");
    rdma_freeaddrinfo(info);
    return id;
}

static inline void receive(struct peer *p) {
    char *to = p->memory + 2 * p->bytes;
    must(rdma_post_recv(p->id, NULL, to, CONTROL, p->mr), "rdma_post_recv");
}

/* Receives take messages of `bytes` where a pattern sends its data by Sends. */
static inline void receive_data(struct peer *p) {
    must(rdma_post_recv(p->id, NULL, p->memory + p->bytes, p->bytes, p->mr), "rdma_post_recv");
}

static inline void prepare(struct peer *p, size_t bytes, void (*post)(struct peer *)) {
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    p->bytes = bytes;
    p->memory = calloc(1, 2 * bytes + CONTROL);
    must(p->memory == NULL, "calloc");
    p->mr = ibv_reg_mr(p->id->pd, p->memory, 2 * bytes + CONTROL, access);
    must(p->mr == NULL, "ibv_reg_mr");
    p->here.address = (uintptr_t)p->memory;
    p->here.key = p->mr->rkey;
    for (int i = 0; i < RECEIVES; i++)
        post(p);
}

/* Joins this process to the other one by a connection; each has `bytes` to send from and as many
 * to receive into, and `post` posts a receive. One that listens may be joined over and over. */
static inline struct peer join(char **argv, struct rdma_cm_id **listener, size_t bytes,
                               void (*post)(struct peer *)) {
    struct peer p = {.connects = strcmp(argv[1], "connect") == 0, .seconds = atof(argv[4])};
    struct rdma_conn_param how = {
        .private_data = &p.here,
        .private_data_len = sizeof p.here,
        .responder_resources = 16,
        .initiator_depth = 16,
        .retry_count = 7,
        .rnr_retry_count = 7,
    };
    p.pattern = argv[5];
    double began = now_s();
    if (p.connects) {
        p.id = endpoint(argv[2], argv[3], 0);
        prepare(&p, bytes, post);
        must(rdma_connect(p.id, &how), "rdma_connect");
        p.connecting_s = now_s() - began;
        memcpy(&p.far, p.id->event->param.conn.private_data, sizeof p.far);
        return p;
    }
    if (*listener == NULL) {
        *listener = endpoint(argv[2], argv[3], RAI_PASSIVE);
        must(rdma_listen(*listener, BACKLOG), "rdma_listen");
    }
    must(rdma_get_request(*listener, &p.id), "rdma_get_request");
    memcpy(&p.far, p.id->event->param.conn.private_data, sizeof p.far);
    prepare(&p, bytes, post);
    must(rdma_accept(p.id, &how), "rdma_accept");
    return p;
}

/* The only connection of a program. */
static inline struct peer meet(char **argv, size_t bytes, void (*post)(struct peer *)) {
    struct rdma_cm_id *listener = NULL;
    struct peer p = join(argv, &listener, bytes, post);
    if (listener)
        rdma_destroy_ep(listener);
    return p;
}

static inline void part(struct peer *p) {
    rdma_disconnect(p->id);
    rdma_dereg_mr(p->mr);
    free(p->memory);
    rdma_destroy_ep(p->id);
}

static inline void post(struct peer *p, enum ibv_wr_opcode opcode, size_t from, size_t to,
                        size_t bytes, int flags) {
    struct ibv_sge sge = {(uintptr_t)p->memory + from, bytes, p->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
    wr.send_flags = flags;
    wr.wr.rdma.remote_addr = p->far.address + to;
    wr.wr.rdma.rkey = p->far.key;
    must(ibv_post_send(p->id->qp, &wr, &bad), "ibv_post_send");
}

/* Into what the other side receives into. */
static inline void post_write(struct peer *p, size_t bytes, int flags) {
    post(p, IBV_WR_RDMA_WRITE, 0, p->bytes, bytes, flags);
}

/* Asks over and over until something is complete; its length, if it was received. */
static inline uint32_t wait_for(struct ibv_cq *cq) {
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    if (count < 0 || wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "a request failed: %s\n", ibv_wc_status_str(wc.status));
        exit(1);
    }
    return wc.byte_len;
}

/* Says `value` in a message of its own and waits until it has been taken. */
static inline void tell(struct peer *p, double value) {
    memcpy(p->memory, &value, sizeof value);
    post(p, IBV_WR_SEND, 0, 0, sizeof value, IBV_SEND_SIGNALED);
    wait_for(p->id->send_cq);
}

/* What the other side tells; receives are those of `receive`. */
static inline double hear(struct peer *p) {
    double value;
    wait_for(p->id->recv_cq);
    memcpy(&value, p->memory + 2 * p->bytes, sizeof value);
    receive(p);
    return value;
}

/* Uses the processor for so long, as a program does that computes. */
static inline void compute(double seconds) {
    double until = now_s() + seconds;
    while (now_s() < until)
        ;
}
